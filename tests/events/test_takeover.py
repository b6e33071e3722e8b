"""One and three servers on every combination of engines: events published on any server are delivered in order; when the server
that works on a subscription is killed, stopped or suspended, another one continues; a restart keeps the queue."""
import collections
import contextlib
import os
import signal
import threading
import time

import pytest

from events.conftest import client
from events.endpoint import HANG, Answer, Endpoint, script
from events.topics_api import publish, put, report
from events.workers import worker
from support.process import until

QUICK = """
[nodes]
heartbeat_ms = 200
lease_ms = 1500
[events]
lease_ms = 1500
backoff_min_ms = 50
backoff_max_ms = 300
"""
# A suspended node is not considered dead: only the lease of the subscription expires.
PATIENT = QUICK.replace("lease_ms = 1500\n[events]\nlease_ms = 1500", "lease_ms = 60000\n[events]\nlease_ms = 1000")


@contextlib.contextmanager
def apis(servers):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(client(server, server.key)) for server in servers]


@contextlib.contextmanager
def suspended(server):
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


def others(servers, one):
    return [server for server in servers if server is not one]


def numbered(first, last):
    return [{"type": str(n)} for n in range(first, last + 1)]


@pytest.mark.parametrize("count", [1, 3])
def test_events_from_any_server_are_delivered_once_and_in_order(combination, count):
    with combination.cluster(count, QUICK) as servers, apis(servers) as known, Endpoint() as endpoint:
        topics = [f"t{n}" for n in range(count)]
        put(known[0], "all", topics=topics, callback=endpoint.url, timeout_ms=20, max_events=10)

        def publish_all(api, topic):
            for n in range(0, 60, 3):
                publish(api, topic, [{"type": str(n + at)} for at in range(3)])

        publishers = [threading.Thread(target=publish_all, args=pair) for pair in zip(known, topics)]
        [publisher.start() for publisher in publishers]
        [publisher.join() for publisher in publishers]
        endpoint.got(range(1, 60 * count + 1))
        received = collections.defaultdict(list)
        for event in endpoint.taken():
            received[event["topic"]].append(int(event["type"]))
        assert received == {topic: list(range(60)) for topic in topics}
        for api in known:
            until(lambda: report(api, "all")["queued"] == 0, "the queue to be empty on every server")


def test_a_topic_added_on_one_server_applies_on_all(combination):
    with combination.cluster(3, QUICK) as servers, apis(servers) as known, Endpoint() as endpoint:
        put(known[0], "all", topics=["a"], callback=endpoint.url, timeout_ms=0)
        publish(known[1], "a", {"type": "1"})
        endpoint.got([1])
        put(known[1], "all", topics=["a", "b"])
        publish(known[2], "b", {"type": "2"})
        publish(known[0], "b", {"type": "3"})
        endpoint.got([1, 2, 3], timeout=5)
        assert known[2].delete("/v1/subscriptions/all").status_code == 200
        publish(known[0], "a", {"type": "4"})
        assert put(known[1], "all", topics=["a"], callback=endpoint.url, timeout_ms=0)["created"]
        publish(known[0], "a", {"type": "new"})
        endpoint.until(lambda it: len(it.taken()) >= 4)
        assert [(event["seq"], event["type"]) for event in endpoint.taken()] == [(1, "1"), (2, "2"), (3, "3"), (1, "new")]


def test_another_server_takes_over_from_a_killed_one(combination):
    with combination.cluster(3, QUICK) as servers, apis(servers) as known, Endpoint(HANG) as endpoint:
        put(known[0], "s", topics=["t"], callback=endpoint.url, timeout_ms=0, max_events=2)
        publish(known[1], "t", numbered(1, 5))
        first = endpoint.posted(1)[0]
        dead = worker(servers, first)
        dead.kill()
        endpoint.status = 200
        began = time.monotonic()
        endpoint.got(range(1, 6))
        assert time.monotonic() - began < 8
        assert endpoint.posts[1].id == first.id and endpoint.posts[1].raw == first.raw, "the batch is unchanged"
        with client(others(servers, dead)[0], dead.key) as api:
            publish(api, "t", {"type": "6"})
            endpoint.got(range(1, 7))


def test_another_server_takes_over_from_a_stopped_one_at_once(combination):
    with combination.cluster(3, QUICK) as servers, apis(servers) as known, Endpoint(script(500)) as endpoint:
        put(known[0], "s", topics=["t"], callback=endpoint.url, timeout_ms=0)
        publish(known[0], "t", numbered(1, 2))
        endpoint.got([1, 2])
        stopped = worker(servers, endpoint.posts[-1])
        assert stopped.terminate() == 0
        with client(others(servers, stopped)[0], stopped.key) as api:
            publish(api, "t", {"type": "3"})
            endpoint.got([1, 2, 3], timeout=8)


def test_the_late_result_of_a_suspended_worker_is_ignored(combination):
    gate = threading.Event()
    with combination.cluster(3, PATIENT) as servers, apis(servers) as known, Endpoint(script(Answer(410, gate=gate))) as endpoint:
        put(known[0], "s", topics=["t"], callback=endpoint.url, timeout_ms=0, max_events=2)
        publish(known[0], "t", numbered(1, 4))
        first = endpoint.posted(1)[0]
        late = worker(servers, first)
        awake = others(servers, late)
        # Suspended between two commits: inside one it would lock the store.
        until(lambda: len(report(known[0], "s")["batches"]) == 2, "the next batch to be saved")
        with suspended(late):
            endpoint.got(range(1, 5))
            assert endpoint.posts[1].id == first.id and endpoint.posts[1].raw == first.raw
            assert worker(awake, endpoint.posts[1]) in awake
            with client(awake[0], late.key) as api:
                publish(api, "t", numbered(5, 6))
                endpoint.got(range(1, 7))
            # The response is waiting when it resumes: 410, which would disable the subscription.
            gate.set()
        with apis(servers) as again:
            for n, api in enumerate(again, 7):
                publish(api, "t", {"type": str(n)})
            endpoint.got(range(1, 10))
            for api in again:
                until(lambda: report(api, "s")["queued"] == 0, "the queue to be empty")
                assert report(api, "s")["health"] == "healthy"


def test_a_worker_keeps_its_lease_during_a_slow_response(combination):
    gate = threading.Event()
    # A busy machine may stop a server for a second.
    longer = PATIENT.replace("lease_ms = 1000", "lease_ms = 2500")
    with combination.cluster(3, longer) as servers, apis(servers) as known, Endpoint(script(Answer(gate=gate))) as endpoint:
        put(known[0], "s", topics=["t"], callback=endpoint.url, timeout_ms=0)
        publish(known[0], "t", {"type": "1"})
        began = endpoint.posted(1)[0].at
        # Three lease periods, while every server wakes the workers.
        n = 1
        while time.monotonic() - began < 7.5:
            n += 1
            publish(known[n % 3], "t", {"type": str(n)})
            threading.Event().wait(0.1)
        assert len(endpoint.posts) == 1
        gate.set()
        endpoint.got(range(1, n + 1))


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_restart_keeps_the_queue(combination, how):
    with combination.cluster(1, QUICK) as servers, Endpoint(503) as endpoint:
        server = servers[0]
        with client(server, server.key) as api:
            put(api, "s", topics=["t"], callback=endpoint.url, timeout_ms=0, max_events=4)
            put(api, "slow", topics=["t"], callback=endpoint.url.replace("/hook", "/slow"), timeout_ms=3_600_000)
            publish(api, "t", numbered(1, 10))
            endpoint.posted(2)
        server.terminate() if how == "stopped" else server.kill()
        first = endpoint.posts[0]
        endpoint.status = 200
        server.start()
        with client(server, server.key) as api:
            publish(api, "t", numbered(11, 12))
            endpoint.got(range(1, 13))
            assert [post.seqs for post in endpoint.posts if post.status == 200][0] == first.seqs
            assert {(post.id, post.raw) for post in endpoint.posts if post.seqs == first.seqs} == {(first.id, first.raw)}
            assert report(api, "slow")["queued"] == 12
            put(api, "slow", timeout_ms=0)
            endpoint.until(lambda it: [event for post in it.posts if post.path == "/slow" for event in post.seqs] == list(range(1, 13)))


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_an_idempotency_key_outlives_a_restart(combination, how):
    with combination.cluster(1) as servers:
        server = servers[0]
        with client(server, server.key) as api:
            first = publish(api, "t", [{"type": "a", "id": "x"}, {"type": "b"}], once="k")
        server.terminate() if how == "stopped" else server.kill()
        server.start()
        with client(server, server.key) as api:
            assert publish(api, "t", [{"type": "c"}, {"type": "d", "id": "y"}, {"type": "e"}], once="k") == first
            assert publish(api, "t", {"type": "f"})["first_seq"] == 3


def test_a_stop_waits_for_deliveries_in_flight(combination):
    gate = threading.Event()
    with combination.cluster(1, "[sessions]\ndrain_ms = 20000\n") as servers, Endpoint(Answer(gate=gate)) as endpoint:
        server = servers[0]
        with client(server, server.key) as api:
            put(api, "s", topics=["t"], callback=endpoint.url, timeout_ms=0)
            publish(api, "t", {"type": "a"})
            endpoint.posted(1)
        # Longer than it waits without a wake-up.
        threading.Timer(4, gate.set).start()
        assert server.terminate() == 0
        assert gate.is_set()
        server.start()
        with client(server, server.key) as api:
            publish(api, "t", {"type": "b"})
            endpoint.got([1, 2])
            assert [post.seqs for post in endpoint.posts] == [[1], [2]], "nothing was sent twice"


def test_an_attempt_that_a_stop_cuts_off_is_counted(combination):
    with combination.cluster(1, "[sessions]\ndrain_ms = 500\n") as servers, Endpoint(HANG) as endpoint:
        server = servers[0]
        with client(server, server.key) as api:
            put(api, "s", topics=["t"], callback=endpoint.url, timeout_ms=0)
            publish(api, "t", {"type": "a"})
            endpoint.posted(1)
        assert server.terminate() == 0
        endpoint.status = 200
        server.start()
        endpoint.posted(2)
        assert [post.headers["tavern-attempt"] for post in endpoint.posts] == ["1", "2"]
