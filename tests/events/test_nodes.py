"""Topics and subscriptions are the same on every server of a cluster."""
import threading
import time

import pytest

from events.conftest import client
from events.topics_api import code, events, command, publish, pull, put, report, seqs


@pytest.fixture(scope="session")
def ann_there(nodes, keys):
    with client(nodes[1], keys[0]) as api:
        yield api


@pytest.fixture(scope="session")
def bob_there(nodes, keys):
    with client(nodes[1], keys[1]) as api:
        yield api


def test_a_claim_applies_and_moves_on_every_node(ann, bob, ann_there, bob_there, admin, keys, topic):
    publish(ann, topic, {"type": "1"})
    assert code(bob_there.post(f"/v1/topics/{topic}/events", json={"type": "x"})) == (403, "claimed")
    assert publish(ann_there, topic, {"type": "2"})["first_seq"] == 2
    assert admin.put(f"/v1/topics/{topic}", json={"publisher": keys[1].split("_")[1]}).status_code == 200
    assert code(ann_there.post(f"/v1/topics/{topic}/events", json={"type": "x"})) == (403, "claimed"), "also where it was cached"
    assert publish(bob_there, topic, {"type": "3"})["first_seq"] == 3
    assert publish(bob, topic, {"type": "4"})["first_seq"] == 4
    assert admin.delete(f"/v1/topics/{topic}").status_code == 200
    assert publish(ann_there, topic, {"type": "5"})["first_seq"] == 1, "a new topic, without a publisher"
    assert code(bob.post(f"/v1/topics/{topic}/events", json={"type": "x"})) == (403, "claimed")


def test_concurrent_claims_on_two_nodes_have_one_winner(ann, bob_there, topic):
    for round in range(5):
        answers = {}

        def claim(api, who):
            answers[who] = api.post(f"/v1/topics/{topic}.{round}/events", json=[{"type": "a"}] * 3)

        claims = [threading.Thread(target=claim, args=args) for args in ((ann, "ann"), (bob_there, "bob"))]
        [one.start() for one in claims]
        [one.join() for one in claims]
        assert sorted(answer.status_code for answer in answers.values()) == [202, 403]
        assert ann.get(f"/v1/topics/{topic}.{round}").json()["events"] == 3


def test_events_published_on_one_node_are_pulled_on_another(ann, ann_there, topic, name):
    put(ann_there, name, topics=[topic], pull=True)
    later = threading.Timer(0.3, lambda: publish(ann, topic, [{"type": "a"}, {"type": "b"}]))
    later.start()
    started = time.monotonic()
    assert seqs(pull(ann_there, name, wait_ms=20_000)) == [1, 2]
    assert time.monotonic() - started < 3
    later.join()
    assert seqs(pull(ann, name, after=1)) == [2]
    assert seqs(pull(ann_there, name)) == [2], "acknowledged on both nodes"


def test_event_ids_and_idempotency_keys_dedupe_across_nodes(ann, ann_there, topic):
    first = publish(ann, topic, [{"type": "a"}, {"type": "b"}], once="k")
    assert publish(ann_there, topic, [{"type": "a"}, {"type": "b"}], once="k") == first
    publish(ann, topic, {"type": "c", "id": "i"})
    assert publish(ann_there, topic, {"type": "d", "id": "i"})["duplicates"] == 1


def test_topics_change_on_one_node_while_events_are_published_on_another(ann, ann_there, topic, name):
    a, b = f"{topic}.a", f"{topic}.b"
    put(ann, name, topics=[a], pull=True)
    published = []

    def publish_all():
        for n in range(40):
            publish(ann, (a, b)[n % 2], [{"type": f"{n}.{at}"} for at in range(3)])
            published.append(n)

    publisher = threading.Thread(target=publish_all)
    publisher.start()
    flips = 0
    while publisher.is_alive():
        put(ann_there, name, topics=[[a], [b], [a, b]][flips % 3])
        flips += 1
    publisher.join()
    head = report(ann_there, name)["seq"]
    got = []
    while len(got) < head:
        page = events(pull(ann_there, name, after=len(got), limit=7))
        assert page, f"got {len(got)} of {head}"
        got += page
    assert [event["seq"] for event in got] == list(range(1, head + 1))
    assert len({event["type"] for event in got}) == head, "each once"
    assert command(ann, name, "replay", {"from_seq": 1})["rewound"]
    again = []
    while len(again) < head:
        again += events(pull(ann, name, after=len(again), limit=11))
    assert again == got, "the same seqs from the other node"


def test_concurrent_changes_of_a_subscription_are_both_applied(ann, ann_there, topic, name):
    put(ann, name, topics=[topic], callback="http://127.0.0.1:9/x")

    def change(api, member, values):
        for value in values:
            put(api, name, **{member: value})

    crowd = [
        threading.Thread(target=change, args=(ann, "max_events", range(1, 11))),
        threading.Thread(target=change, args=(ann_there, "timeout_ms", range(1, 11))),
    ]
    [one.start() for one in crowd]
    [one.join() for one in crowd]
    found = report(ann, name)
    assert (found["max_events"], found["timeout_ms"]) == (10, 10)


def test_idempotency_key_with_another_body_gets_the_first_response_on_both_nodes(ann, ann_there, topic, name):
    put(ann, name, topics=[topic], pull=True)
    publish(ann, topic, {"type": "z", "id": "known"})
    first = publish(ann, topic, [{"type": "a", "id": "known"}, {"type": "b", "id": "new"}, {"type": "c"}], once="k")
    assert (first["accepted"], first["duplicates"]) == (2, 1)
    for body in ({"type": "other"}, [{"type": "d", "id": "d"}] * 2, [{"type": "e"}] * 9):
        assert publish(ann_there, topic, body, once="k") == first
    assert publish(ann_there, topic, {"type": "a", "id": "known"}, once="k2")["duplicates"] == 1, "another key"
    assert [event["type"] for event in pull(ann, name)["events"]] == ["z", "b", "c"]
