"""Commands to a subscription: replay, enable, disable, dead letters. All state survives a restart."""
import datetime
import time

from events.conftest import client
from events.topics_api import code, events, command, publish, pull, put, report, seqs
from support.tavern import Tavern

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_a_replay_returns_the_same_seqs(ann, topic, name):
    a, b = f"{topic}.a", f"{topic}.b"
    put(ann, name, topics=[a], pull=True)
    publish(ann, a, [{"type": str(n)} for n in range(3)])
    put(ann, name, topics=[a, b])
    publish(ann, b, [{"type": str(n)} for n in range(3)])
    first = events(pull(ann, name))
    assert pull(ann, name, after=6)["events"] == []
    assert command(ann, name, "replay", {"from_seq": 3}) == {"from_seq": 3, "rewound": True}
    assert report(ann, name)["queued"] == 4
    assert events(pull(ann, name)) == first[2:]
    assert command(ann, name, "replay", {"from_seq": 1})["rewound"]
    assert events(pull(ann, name)) == first
    assert command(ann, name, "replay", {"from_seq": 7}) == {"from_seq": 7, "rewound": False}
    for bad in ({}, {"from_seq": 0}, {"from_seq": 8}, {"from_seq": "x"}, {"from_time": "yesterday"}, {"from_seq": 1, "from_time": 1}):
        assert code(ann.post(f"/v1/subscriptions/{name}/replay", json=bad)) == (400, "bad_request"), bad


def test_replay_from_a_timestamp(ann, topic, name):
    put(ann, name, topics=[topic], pull=True)
    publish(ann, topic, {"type": "1"})
    time.sleep(0.05)
    middle = time.time()
    time.sleep(0.05)
    publish(ann, topic, [{"type": "2"}, {"type": "3"}])
    assert pull(ann, name, after=3)["events"] == []
    assert command(ann, name, "replay", {"from_time": int(middle * 1000)})["from_seq"] == 2
    assert seqs(pull(ann, name)) == [2, 3]
    assert command(ann, name, "replay", {"from_time": 1}) == {"from_seq": 1, "rewound": True}
    assert seqs(pull(ann, name, after=3)) == []
    moment = datetime.datetime.fromtimestamp(middle, datetime.timezone.utc).isoformat()
    assert command(ann, name, "replay", {"from_time": moment})["from_seq"] == 2
    assert command(ann, name, "replay", {"from_time": int(time.time() * 1000) + 60_000})["rewound"] is False


def test_nothing_is_lost_while_disabled(ann, topic, name):
    put(ann, name, topics=[topic], pull=True)
    publish(ann, topic, {"type": "1"})
    found = command(ann, name, "disable")
    assert (found["health"], found["why"]) == ("disabled", "asked")
    assert command(ann, name, "disable")["health"] == "disabled", "disable is idempotent"
    assert code(ann.get(f"/v1/subscriptions/{name}/events")) == (409, "conflict")
    publish(ann, topic, {"type": "2"})
    assert report(ann, name)["queued"] == 2
    assert command(ann, name, "enable")["health"] == "healthy"
    assert [event["type"] for event in events(pull(ann, name))] == ["1", "2"]


def test_disabling_is_reported_on_the_server_topic(ann, name):
    watcher = f"{name}-watcher"
    put(ann, watcher, topics=["tavern.deliveries"], pull=True)
    put(ann, name, topics=[], callback="http://127.0.0.1:9/hook")
    command(ann, name, "disable")
    found = [event for event in events(pull(ann, watcher, wait_ms=5000)) if event["data"]["subscription"] == name]
    assert [(event["type"], event["data"]["why"]) for event in found] == [("disabled", "asked")]
    assert report(ann, name)["health"] == "disabled"


def test_a_subscription_without_dead_letters_lists_none(ann, bob, topic, name):
    put(ann, name, topics=[topic], pull=True)
    assert ann.get(f"/v1/subscriptions/{name}/dead-letters").json() == {"dead_letters": [], "next": None}
    assert command(ann, name, "dead-letters/retry") == {"retried": 0, "more": False}
    assert command(ann, name, "dead-letters/retry", {"ids": ["a", 5]}) == {"retried": 0, "more": False}
    assert code(ann.post(f"/v1/subscriptions/{name}/dead-letters/retry", json={"ids": 5})) == (400, "bad_request")
    assert code(bob.get(f"/v1/subscriptions/{name}/dead-letters")) == (403, "not_allowed")
    assert code(bob.post(f"/v1/subscriptions/{name}/dead-letters/retry")) == (403, "not_allowed")
    for what in ("enable", "disable", "replay"):
        assert code(bob.post(f"/v1/subscriptions/{name}/{what}", json={"from_seq": 1})) == (403, "not_allowed")


def test_a_restart_keeps_all_state():
    with Tavern.dev() as server:
        key = server.api_key("events", "subscriptions")
        with client(server, key) as api:
            put(api, "kept", topics=["t"], pull=True, secret=SECRET, max_events=7)
            publish(api, "t", [{"type": "1", "id": "x"}, {"type": "2"}, {"type": "3"}])
            publish(api, "t", {"type": "4"}, once="once")
            assert seqs(pull(api, "kept", limit=2)) == [1, 2]
            assert seqs(pull(api, "kept", after=2)) == [3, 4]
            before = report(api, "kept")
        server.kill()
        server.start()
        with client(server, key) as api, client(server, server.key) as admin:
            after = report(api, "kept")
            assert {**after, "oldest_ms": 0} == {**before, "oldest_ms": 0}
            assert publish(api, "t", {"type": "1", "id": "x"})["duplicates"] == 1
            again = publish(api, "t", {"type": "4"}, once="once")
            assert again == {"topic": "t", "first_seq": 4, "last_seq": 4, "accepted": 1, "duplicates": 0}
            assert seqs(pull(api, "kept")) == [3, 4]
            assert code(admin.post("/v1/topics/t/events", json={"type": "a"})) == (403, "claimed")
            assert command(api, "kept", "replay", {"from_seq": 1})["rewound"]
            assert seqs(pull(api, "kept")) == [1, 2, 3, 4]
