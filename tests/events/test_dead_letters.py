"""Dead letters: refused events are stored, listed and retried. Also commands to a subscription during delivery."""
import pytest

from events.conftest import client
from events.endpoint import Endpoint
from events.topics_api import events, command, publish, pull, put, report, seqs
from support.process import until
from support.tavern import Tavern

QUICK = "[events]\nbackoff_min_ms = 5\nbackoff_max_ms = 20\n"


@pytest.fixture(scope="module")
def quick():
    with Tavern.dev(QUICK) as server:
        with client(server, server.api_key("events", "subscriptions")) as api:
            yield api


def refuses(*types):
    return lambda body: 400 if any(event["type"] in types for event in body["events"]) else 200


def dead(api, name, **page):
    return api.get(f"/v1/subscriptions/{name}/dead-letters", params=page).json()


def test_refused_events_become_dead_letters_and_can_be_retried(quick, topic, name):
    with Endpoint(refuses("bad")) as endpoint:
        put(quick, name, topics=[topic], callback=endpoint.url, timeout_ms=0)
        kinds = ["good", "bad", "good", "bad", "bad", "good"]
        publish(quick, topic, [{"type": kind, "id": f"{kind}-{n}", "data": n} for n, kind in enumerate(kinds, 1)])
        until(lambda: report(quick, name)["dead_letters"] == 3, "three dead letters", 30)
        until(lambda: report(quick, name)["queued"] == 0, "the other events to be delivered")
        assert [event["seq"] for event in endpoint.taken()] == [1, 3, 6]
        letters = dead(quick, name)["dead_letters"]
        assert [(letter["seq"], letter["id"], letter["topic"]) for letter in letters] == [(2, "bad-2", topic), (4, "bad-4", topic), (5, "bad-5", topic)]
        assert letters[0]["event"]["type"] == "bad" and letters[0]["event"]["data"] == 2 and letters[0]["parked_at"] > 0
        page = dead(quick, name, limit=2)
        assert len(page["dead_letters"]) == 2 and page["next"] == "4"
        assert [letter["seq"] for letter in dead(quick, name, after=page["next"])["dead_letters"]] == [5]

        assert command(quick, name, "dead-letters/retry", {"ids": ["bad-2"]})["retried"] == 1
        until(lambda: report(quick, name)["queued"] == 0, "the retry to be refused again")
        assert [letter["seq"] for letter in dead(quick, name)["dead_letters"]] == [2, 4, 5], "a dead letter again"

        endpoint.status = 200
        assert command(quick, name, "dead-letters/retry", {"ids": [4]})["retried"] == 1
        endpoint.until(lambda it: 4 in [event["seq"] for _, _, body in it.posts[-1:] for event in body["events"]])
        until(lambda: [letter["seq"] for letter in dead(quick, name)["dead_letters"]] == [2, 5], "one dead letter fewer")
        assert command(quick, name, "dead-letters/retry")["retried"] == 2
        until(lambda: sorted(event["seq"] for event in endpoint.taken()) == [1, 2, 3, 4, 5, 6], "all events to be accepted")
        assert dead(quick, name)["dead_letters"] == []
        until(lambda: report(quick, name)["queued"] == 0, "rest")


def test_dead_letters_are_removed_with_their_subscription(quick, topic, name):
    with Endpoint(400) as endpoint:
        put(quick, name, topics=[topic], callback=endpoint.url, timeout_ms=0)
        publish(quick, topic, {"type": "bad"})
        until(lambda: report(quick, name)["dead_letters"] == 1, "a dead letter", 30)
        assert quick.delete(f"/v1/subscriptions/{name}").status_code == 200
        put(quick, name, topics=[topic], callback=endpoint.url)
        assert dead(quick, name)["dead_letters"] == []


def test_a_replay_is_posted_with_the_same_seqs(quick, topic, name):
    with Endpoint() as endpoint:
        put(quick, name, topics=[topic], callback=endpoint.url, timeout_ms=0, max_events=2)
        publish(quick, topic, [{"type": str(n)} for n in range(5)])
        until(lambda: report(quick, name)["acknowledged"] == 5, "everything to be delivered")
        assert command(quick, name, "replay", {"from_seq": 3})["rewound"]
        until(lambda: len(endpoint.taken()) == 8 and report(quick, name)["acknowledged"] == 5, "three replayed events")
        assert [event["seq"] for event in endpoint.taken()] == [1, 2, 3, 4, 5, 3, 4, 5]
        assert {event["seq"]: event["type"] for event in endpoint.taken()} == {n + 1: str(n) for n in range(5)}


def test_nothing_is_sent_while_disabled_and_nothing_is_lost(quick, topic, name):
    with Endpoint() as endpoint:
        put(quick, name, topics=[topic], callback=endpoint.url, timeout_ms=0)
        command(quick, name, "disable")
        publish(quick, topic, [{"type": "a"}, {"type": "b"}])
        assert report(quick, name)["queued"] == 2 and endpoint.taken() == []
        command(quick, name, "enable")
        until(lambda: [event["seq"] for event in endpoint.taken()] == [1, 2], "the queued events")


def test_topics_change_while_events_are_delivered(quick, topic, name):
    a, b = f"{topic}.a", f"{topic}.b"
    with Endpoint() as endpoint:
        put(quick, name, topics=[a], callback=endpoint.url, timeout_ms=0, max_events=3)
        for n in range(30):
            publish(quick, a if n % 2 else b, [{"type": f"{n}-{at}"} for at in range(4)])
            put(quick, name, topics=[a, b] if n % 3 else [a])
        head = report(quick, name)["seq"]
        until(lambda: report(quick, name)["acknowledged"] == head, "everything to be delivered", 30)
        numbers = {}
        for event in endpoint.taken():
            assert numbers.setdefault(event["seq"], event["type"]) == event["type"], "a seq identifies one event"
        assert sorted(numbers) == list(range(1, head + 1)) and len(set(numbers.values())) == head


def test_switching_to_pull_returns_undelivered_events(quick, topic, name):
    with Endpoint(503) as endpoint:
        put(quick, name, topics=[topic], callback=endpoint.url, timeout_ms=0, max_events=2)
        publish(quick, topic, [{"type": str(n)} for n in range(5)])
        until(lambda: report(quick, name)["health"] in ("throttled", "failing"), "the first attempt to fail")
        put(quick, name, pull=True)
        assert [event["type"] for event in events(pull(quick, name))] == ["0", "1", "2", "3", "4"]
        assert seqs(pull(quick, name, after=3)) == [4, 5]
        found = report(quick, name)
        assert (found["health"], found["batches"], found["queued"]) == ("healthy", [], 2)
        endpoint.status = 200
        put(quick, name, pull=False)
        until(lambda: [event["seq"] for event in endpoint.taken()] == [4, 5], "the rest to be posted")
