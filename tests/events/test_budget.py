"""Storage limits: the oldest events are dropped, subscriptions that had not received them get a gap, others are not affected, and
publishing continues."""
import pytest

from events.conftest import client
from events.endpoint import Endpoint
from events.topics_api import command, publish, pull, put, report
from support.process import until
from support.tavern import Tavern

CONFIG = """
[events]
max_bytes = 65536
low_bytes = 30000
backoff_min_ms = 100
backoff_max_ms = 1000
"""


@pytest.fixture
def api():
    with Tavern.dev(CONFIG) as server, client(server, server.key) as api:
        api.server = server
        yield api


def fill(api, topic, count, size=1000):
    for first in range(0, count, 50):
        publish(api, topic, [{"type": "x", "data": {"n": n, "pad": "x" * size}} for n in range(first, min(first + 50, count))])


def test_slow_subscriptions_get_a_gap_and_others_are_not_affected(api):
    with Endpoint() as good, Endpoint(503) as bad:
        put(api, "watch", topics=["tavern.deliveries"], pull=True)
        put(api, "good", topics=["t"], callback=good.url, timeout_ms=50)
        put(api, "bad", topics=["t"], callback=bad.url, timeout_ms=50, max_events=10)
        put(api, "pulls", topics=["t"], pull=True)
        # The first batch is in flight: it is saved and delivered unchanged.
        fill(api, "t", 10)
        bad.until(lambda endpoint: endpoint.posts)
        fill(api, "t", 200)
        good.until(lambda endpoint: len(endpoint.taken()) == 210)
        until(lambda: api.get("/v1/subscriptions/bad").json()["queued"] < 100, "the log to be truncated", timeout=20)
        fill(api, "t", 5)
        bad.status = 200
        bad.until(lambda endpoint: endpoint.taken() and endpoint.taken()[-1]["seq"] == 215, timeout=30)
        taken = bad.taken()
        assert [event["seq"] for event in taken[:10]] == list(range(1, 11)), "events in flight are not dropped"
        gaps = [event for event in taken if event["type"] == "tavern.gap"]
        reached = 0
        for event in taken:
            assert event["seq"] == reached + 1, "seqs continue across the gap"
            reached = event["data"]["last_seq"] if event["type"] == "tavern.gap" else event["seq"]
        assert gaps and reached == 215
        good.until(lambda endpoint: len(endpoint.taken()) == 215)
        assert [event["seq"] for event in good.taken()] == list(range(1, 216)), "a fast subscription is not affected"
        assert not [event for event in good.taken() if event["type"] == "tavern.gap"]
        first = pull(api, "pulls", after=0)["events"][0]
        assert first["type"] == "tavern.gap" and first["data"]["first_seq"] == 1
        found = [(event["type"], event["data"]["subscription"]) for event in pull(api, "watch", after=0)["events"]]
        assert ("shed", "bad") in found and ("shed", "pulls") in found
        assert all(name != "good" for _, name in found)


def test_a_saved_batch_survives_a_crash(api):
    with Endpoint(503) as bad:
        put(api, "bad", topics=["t"], callback=bad.url, timeout_ms=50, max_events=10)
        fill(api, "t", 10)
        bad.until(lambda endpoint: endpoint.posts)
        fill(api, "t", 150)
        until(lambda: api.get("/v1/subscriptions/bad").json()["queued"] < 100, "the log to be truncated", timeout=20)
        api.server.kill()
        api.server.start()
        bad.status = 200
        bad.until(lambda endpoint: len(endpoint.taken()) > 10, timeout=30)
        first = next(body for status, _, body in bad.posts if status == 200)
        assert first == bad.posts[0][2], "the same bytes as before the truncation and the crash"


def walk(events):
    """Checks that seqs have no gaps except announced ones; returns the last seq and the number of dropped events."""
    reached = dropped = 0
    for event in events:
        assert event["seq"] == reached + 1
        reached = event["data"]["last_seq"] if event["type"] == "tavern.gap" else event["seq"]
        dropped += reached - event["seq"] + 1 if event["type"] == "tavern.gap" else 0
    return reached, dropped


def test_only_a_subscription_over_its_own_limit_gets_a_gap(combination):
    with combination.cluster(2) as servers, client(servers[0], servers[0].key) as api, Endpoint(503) as bad:
        put(api, "watch", topics=["tavern.deliveries"], pull=True)
        put(api, "bounded", topics=["t"], callback=bad.url, timeout_ms=0, max_events=10, max_backlog_bytes=100_000)
        put(api, "free", topics=["t"], pull=True)
        put(api, "small", topics=["t"], pull=True, max_backlog_bytes=65_536)
        put(api, "large", topics=["t"], pull=True, max_backlog_bytes=10_000_000)
        assert report(api, "bounded")["max_backlog_bytes"] == 100_000
        fill(api, "t", 10)
        bad.until(lambda endpoint: endpoint.posts)
        fill(api, "t", 190)
        until(lambda: report(api, "bounded")["queued"] < 100, "the first cursor to move", 20)
        until(lambda: report(api, "small")["queued"] < 65, "the second cursor to move", 20)
        # Events outside batches and the gap fill four fifths of the limit, or slightly less.
        found = report(api, "bounded")
        assert 65 <= found["queued"] - sum(batch["events"] for batch in found["batches"]) - 1 <= 77
        assert report(api, "large")["queued"] == report(api, "free")["queued"] == 200
        bad.status = 200
        bad.until(lambda endpoint: endpoint.taken() and endpoint.taken()[-1]["seq"] == 200, timeout=30)
        assert [event["seq"] for event in bad.taken()[:10]] == list(range(1, 11)), "events in flight are not dropped"
        assert walk(bad.taken()) == (200, 200 - len(bad.taken()) + 1)
        whole, most = pull(api, "free", after=0, limit=1000)["events"], pull(api, "small", after=0, limit=1000)["events"]
        assert [event["seq"] for event in whole] == list(range(1, 201)), "the log keeps all events"
        assert most[0]["type"] == "tavern.gap" and walk(most)[0] == 200
        found = [event["data"]["subscription"] for event in pull(api, "watch", after=0)["events"] if event["type"] == "shed"]
        assert set(found) == {"bounded", "small"}
        # The log still has the dropped events: a replay returns them with the same seqs.
        command(api, "bounded", "replay", {"from_seq": 111})
        bad.until(lambda endpoint: endpoint.seqs()[-90:] == list(range(111, 201)), timeout=10)
