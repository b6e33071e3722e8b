"""Batches: order of events, when a batch is sent, its size, and that one waits for the previous."""
import json
import threading
import time

import pytest

from events.endpoint import HANG, Answer, Endpoint
from events.topics_api import publish, put, report
from support.process import until

HOUR_MS = 3_600_000


def types(post):
    return [event["type"] for event in post.body["events"]]


def numbered(first, last):
    return [{"type": str(n)} for n in range(first, last + 1)]


def test_events_arrive_in_order_and_numbered_without_gaps(ann, topic, name):
    a, b, c = (f"{topic}.{letter}" for letter in "abc")
    with Endpoint() as endpoint:
        put(ann, name, topics=[a, b], callback=endpoint.url, timeout_ms=20, max_events=7)
        sent = []
        for n in range(40):
            to = (a, b, c)[n % 3]
            publish(ann, to, [{"type": f"{n}.{at}"} for at in range(3)])
            sent += [f"{n}.{at}" for at in range(3)] if to != c else []
        endpoint.until(lambda it: len(it.taken()) >= len(sent))
        assert [event["type"] for event in endpoint.taken()] == sent
        assert endpoint.seqs() == list(range(1, len(sent) + 1))
        for post in endpoint.posts:
            assert (post.body["subscription"], post.body["first_seq"], post.body["last_seq"]) == (name, post.seqs[0], post.seqs[-1])
            assert len(post.seqs) <= 7 and post.headers["tavern-attempt"] == "1"
        assert len({post.id for post in endpoint.posts}) == len(endpoint.posts), "each batch has its own id"


def test_a_post_contains_the_event_as_published(ann, topic, name):
    with Endpoint() as endpoint:
        put(ann, name, topics=[topic], callback=endpoint.url, timeout_ms=0, headers={"x-mine": "kept"})
        publish(ann, topic, {"type": "create", "id": "i", "url": "http://x/1", "time": 5, "data": {"ä": [1, None]}})
        post, = endpoint.posted(1)
        assert post.body["events"] == [
            {"seq": 1, "id": "i", "topic": topic, "type": "create", "url": "http://x/1", "time": 5, "data": {"ä": [1, None]}}
        ]
        assert post.headers["x-mine"] == "kept" and post.headers["content-type"] == "application/json"


@pytest.mark.alone
def test_a_batch_is_sent_timeout_ms_after_its_first_event(ann, topic, name):
    with Endpoint() as endpoint:
        put(ann, name, topics=[topic], callback=endpoint.url, timeout_ms=700)
        # After the first batch one server owns the subscription. Before that two may have read its first event, and either may send it.
        publish(ann, topic, {"type": "before"})
        endpoint.posted(1)
        began = time.monotonic()
        publish(ann, topic, {"type": "first", "time": 1})
        accepted = time.monotonic()
        stop = threading.Event()

        def more():
            while not stop.wait(0.05):
                publish(ann, topic, {"type": "more", "time": int(time.time() * 1000) + HOUR_MS})

        others = threading.Thread(target=more)
        others.start()
        try:
            post = endpoint.posted(2)[1]
        finally:
            stop.set()
            others.join()
        assert post.at - accepted < 1.2, "later events do not delay the batch"
        assert post.at - began >= 0.69, "not sent too early"
        assert types(post)[0] == "first" and len(post.seqs) > 3


def test_a_full_batch_is_sent_at_once(ann, topic, name):
    with Endpoint() as endpoint:
        put(ann, name, topics=[topic], callback=endpoint.url, timeout_ms=HOUR_MS, max_events=4)
        publish(ann, topic, numbered(1, 3))
        publish(ann, topic, numbered(4, 10))
        endpoint.got(range(1, 9))
        assert [post.seqs for post in endpoint.posts] == [[1, 2, 3, 4], [5, 6, 7, 8]]
        until(lambda: report(ann, name)["queued"] == 2, "the rest to be queued")
        assert report(ann, name)["last"]["reason"] == "full"


def test_smaller_limits_apply_to_the_current_batch(ann, topic, name):
    with Endpoint() as endpoint:
        put(ann, name, topics=[topic], callback=endpoint.url, timeout_ms=HOUR_MS)
        publish(ann, topic, numbered(1, 5))
        put(ann, name, max_events=2)
        endpoint.got(range(1, 5))
        assert [post.seqs for post in endpoint.posts] == [[1, 2], [3, 4]]
        put(ann, name, timeout_ms=1)
        endpoint.got(range(1, 6))


@pytest.mark.parametrize("format", ["standard", "routemaster"])
def test_a_body_exceeds_max_bytes_only_for_a_single_larger_event(ann, topic, name, format):
    with Endpoint() as endpoint:
        put(ann, name, topics=[topic], callback=endpoint.url, timeout_ms=50, max_bytes=4_096, max_events=10_000, format=format, uuid="u")
        sizes = [10, 900, 3_000, 20_000, 5, 5, 5, 1_500, 1_500, 1_500, 4_000, *[0] * 150]
        publish(ann, topic, [{"type": str(n), "data": "ü" * (size // 2)} for n, size in enumerate(sizes)])

        def arrived(it):
            return [event["type"] for post in it.posts for event in (post.body if format == "routemaster" else post.body["events"])]

        endpoint.until(lambda it: len(arrived(it)) >= len(sizes))
        assert arrived(endpoint) == [str(n) for n in range(len(sizes))]
        alone = []
        for post in endpoint.posts:
            held = post.body if format == "routemaster" else post.body["events"]
            if len(post.raw) > 4_096:
                assert len(held) == 1, f"{len(post.raw)} bytes with {len(held)} events"
                alone += [event["type"] for event in held]
        assert "3" in alone and set(alone) <= {"3", "10"}
        # On a slow machine some are sent by timeout.
        assert len(endpoint.posts) < 25, "batches are filled"


def test_the_next_batch_waits_until_the_previous_is_settled(ann, topic, name):
    gate = threading.Event()
    with Endpoint(Answer(gate=gate)) as endpoint:
        put(ann, name, topics=[topic], callback=endpoint.url, timeout_ms=0, max_events=2)
        publish(ann, topic, numbered(1, 2))
        endpoint.posted(1)
        publish(ann, topic, numbered(3, 8))
        until(lambda: len(report(ann, name)["batches"]) == 2, "the next batch to be complete")
        assert len(endpoint.posts) == 1
        gate.set()
        endpoint.got(range(1, 9))


def test_concurrency_allows_several_batches_in_flight(ann, topic, name):
    gate = threading.Event()
    with Endpoint(Answer(gate=gate)) as endpoint:
        put(ann, name, topics=[topic], callback=endpoint.url, timeout_ms=0, max_events=1, concurrency=3)
        publish(ann, topic, numbered(1, 6))
        endpoint.posted(3)
        until(lambda: len(report(ann, name)["batches"]) >= 3, "three batches")
        assert sorted(post.seqs[0] for post in endpoint.posts) == [1, 2, 3]
        gate.set()
        endpoint.until(lambda it: sorted(it.seqs()) == [1, 2, 3, 4, 5, 6])


def test_later_events_go_into_another_batch(ann, topic, name):
    with Endpoint(HANG) as endpoint:
        put(ann, name, topics=[topic], callback=endpoint.url, timeout_ms=0)
        publish(ann, topic, numbered(1, 2))
        endpoint.posted(1)
        publish(ann, topic, numbered(3, 4))
        until(lambda: [batch["last_seq"] for batch in report(ann, name)["batches"]] == [2, 4], "two complete batches")
        put(ann, name, max_events=1)
        assert [batch["last_seq"] for batch in report(ann, name)["batches"]] == [2, 4], "a complete batch does not change"


def test_large_batches_arrive_complete(ann, topic, name):
    with Endpoint() as endpoint:
        put(ann, name, topics=[topic], callback=endpoint.url, timeout_ms=HOUR_MS, max_events=10_000, max_bytes=16 << 20)
        for first in range(0, 10_000, 1_000):
            publish(ann, topic, numbered(first, first + 999))
        post = endpoint.posted(1, timeout=30)[0]
        assert post.seqs == list(range(1, 10_001)) and json.loads(post.raw) == post.body
