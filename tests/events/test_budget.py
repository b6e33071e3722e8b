"""When space is short: the oldest events go, whoever had not been given them gets a gap in their place, the others notice
nothing, and publishing goes on."""
import pytest

from events.conftest import client
from events.endpoint import Endpoint
from events.office import order, publish, pull, put, report
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


def test_the_slow_get_a_gap_and_the_others_notice_nothing(api):
    with Endpoint() as good, Endpoint(503) as bad:
        put(api, "watch", topics=["tavern.deliveries"], pull=True)
        put(api, "good", topics=["t"], callback=good.url, timeout_ms=50)
        put(api, "bad", topics=["t"], callback=bad.url, timeout_ms=50, max_events=10)
        put(api, "pulls", topics=["t"], pull=True)
        # The first batch is under way: it is copied out, and told as it was.
        fill(api, "t", 10)
        bad.until(lambda endpoint: endpoint.posts)
        fill(api, "t", 200)
        good.until(lambda endpoint: len(endpoint.taken()) == 210)
        until(lambda: api.get("/v1/subscriptions/bad").json()["queued"] < 100, "the log to be cut", timeout=20)
        fill(api, "t", 5)
        bad.status = 200
        bad.until(lambda endpoint: endpoint.taken() and endpoint.taken()[-1]["seq"] == 215, timeout=30)
        taken = bad.taken()
        assert [event["seq"] for event in taken[:10]] == list(range(1, 11)), "what was under way is not dropped"
        gaps = [event for event in taken if event["type"] == "tavern.gap"]
        reached = 0
        for event in taken:
            assert event["seq"] == reached + 1, "numbered without holes, the gap counted"
            reached = event["data"]["last_seq"] if event["type"] == "tavern.gap" else event["seq"]
        assert gaps and reached == 215
        good.until(lambda endpoint: len(endpoint.taken()) == 215)
        assert [event["seq"] for event in good.taken()] == list(range(1, 216)), "who had read it is untouched"
        assert not [event for event in good.taken() if event["type"] == "tavern.gap"]
        first = pull(api, "pulls", after=0)["events"][0]
        assert first["type"] == "tavern.gap" and first["data"]["first_seq"] == 1
        told = [(event["type"], event["data"]["subscription"]) for event in pull(api, "watch", after=0)["events"]]
        assert ("shed", "bad") in told and ("shed", "pulls") in told
        assert all(name != "good" for _, name in told)


def test_a_batch_that_was_copied_out_outlives_the_server(api):
    with Endpoint(503) as bad:
        put(api, "bad", topics=["t"], callback=bad.url, timeout_ms=50, max_events=10)
        fill(api, "t", 10)
        bad.until(lambda endpoint: endpoint.posts)
        fill(api, "t", 150)
        until(lambda: api.get("/v1/subscriptions/bad").json()["queued"] < 100, "the log to be cut", timeout=20)
        api.server.kill()
        api.server.start()
        bad.status = 200
        bad.until(lambda endpoint: len(endpoint.taken()) > 10, timeout=30)
        first = next(body for status, _, body in bad.posts if status == 200)
        assert first == bad.posts[0][2], "the same bytes as before the cut and the crash"


def walk(events):
    """Numbered without holes, gaps counted: the last number, and how many were dropped."""
    reached = dropped = 0
    for event in events:
        assert event["seq"] == reached + 1
        reached = event["data"]["last_seq"] if event["type"] == "tavern.gap" else event["seq"]
        dropped += reached - event["seq"] + 1 if event["type"] == "tavern.gap" else 0
    return reached, dropped


def test_a_subscription_over_its_own_budget_gets_a_gap_and_nobody_else_does(combination):
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
        until(lambda: report(api, "bounded")["queued"] < 100, "the cursor of the one to be moved", 20)
        until(lambda: report(api, "small")["queued"] < 65, "the cursor of the other to be moved", 20)
        # What waits beside the batches and the gap is four fifths of the budget, or a little less.
        told = report(api, "bounded")
        assert 65 <= told["queued"] - sum(batch["events"] for batch in told["batches"]) - 1 <= 77
        assert report(api, "large")["queued"] == report(api, "free")["queued"] == 200
        bad.status = 200
        bad.until(lambda endpoint: endpoint.taken() and endpoint.taken()[-1]["seq"] == 200, timeout=30)
        assert [event["seq"] for event in bad.taken()[:10]] == list(range(1, 11)), "what was under way is not dropped"
        assert walk(bad.taken()) == (200, 200 - len(bad.taken()) + 1)
        whole, most = pull(api, "free", after=0, limit=1000)["events"], pull(api, "small", after=0, limit=1000)["events"]
        assert [event["seq"] for event in whole] == list(range(1, 201)), "the log keeps everything"
        assert most[0]["type"] == "tavern.gap" and walk(most)[0] == 200
        told = [event["data"]["subscription"] for event in pull(api, "watch", after=0)["events"] if event["type"] == "shed"]
        assert set(told) == {"bounded", "small"}
        # The log still has what was dropped: whoever goes back a little gets it with the same numbers.
        order(api, "bounded", "replay", {"from_seq": 111})
        bad.until(lambda endpoint: endpoint.seqs()[-90:] == list(range(111, 201)), timeout=10)
