"""Mailboxes are bounded; dropped events are reported as a gap."""
import pytest

from support.json_client import Poller, Socket
from support.tavern import Tavern

CONFIG = """
[limits]
mailbox_events = 10
mailbox_bytes = 100000
[kinds.strict]
slow_reader = "close"
"""


@pytest.fixture(scope="module")
def small():
    with Tavern.dev(CONFIG) as server:
        yield server


def publish_many(server, channel, count, size=0):
    with Socket(server, user="publisher") as publisher:
        for number in range(1, count + 1):
            publisher.ok("publish", channel=channel, data=[number, "x" * size])


def test_a_websocket_that_was_disconnected_too_long_gets_a_gap(small, channel, user):
    with Socket(small, user=user) as socket:
        socket.ok("subscribe", channel=channel)
        session = socket.hello["session"]
        socket.drop()
        publish_many(small, channel, 30)
        with Socket(small, user=user) as back:
            assert back.ok("hello", session=session, seq=0)["resumed"] is True
            gap = back.event()
            assert gap["event"] == "gap"
            assert (gap["from"], gap["seq"]) == (1, gap["to"])
            rest = [back.event() for _ in range(30 - gap["to"])]
            assert [event["seq"] for event in rest] == list(range(gap["to"] + 1, 31))
            assert [event["data"][0] for event in rest] == list(range(gap["to"] + 1, 31))
            assert 1 <= len(rest) <= 10


def test_a_poller_that_was_away_too_long_gets_a_gap(small, channel, user):
    with Poller(small, user=user) as poller:
        poller.ok("hello")
        poller.ok("subscribe", channel=channel)
        publish_many(small, channel, 30)
        answer = poller.poll()
        messages = [event for event in answer["events"] if event["event"] == "message"]
        assert answer["gap"] is True or any(event["event"] == "gap" for event in answer["events"])
        assert messages[-1]["data"][0] == 30 and messages[-1]["seq"] == 30
        assert len(messages) <= 10


def test_the_bytes_of_a_mailbox_are_bounded(small, channel, user):
    with Poller(small, user=user) as poller:
        poller.ok("hello")
        poller.ok("subscribe", channel=channel)
        publish_many(small, channel, 8, size=30_000)
        received = []
        answer = poller.poll()
        while answer["events"]:
            received += [event for event in answer["events"] if event["event"] == "message"]
            poller.cursor = answer["cursor"]
            answer = poller.poll(timeout_ms=0)
        assert 1 <= len(received) <= 4
        assert received[-1]["data"][0] == 8


def test_acknowledged_events_cause_no_gap(small, channel, user):
    with Poller(small, user=user) as poller:
        poller.ok("hello")
        poller.ok("subscribe", channel=channel)
        for _ in range(5):
            publish_many(small, channel, 5)
            answer = poller.poll()
            assert not answer.get("gap") and len(answer["events"]) == 5
            poller.cursor = answer["cursor"]


def flood(server, channel, count):
    """Publishes more than all buffers on the path hold; each publish must succeed at once although a reader stalls."""
    with Socket(server, user="publisher") as publisher:
        for number in range(1, count + 1):
            assert publisher.ok("publish", channel=channel, data=[number, "x" * 30_000])["receivers"] >= 1


def test_a_stalled_reader_delays_no_publisher_and_gets_a_gap(small, channel, user):
    count = 400
    with Socket(small, user=user, receive_bytes=4096) as stalled:
        stalled.ok("subscribe", channel=channel)
        flood(small, channel, count)
        last, gaps = 0, 0
        while last < count:
            event = stalled.event()
            if event["event"] == "gap":
                assert event["from"] == last + 1 and event["seq"] == event["to"]
                gaps += 1
            else:
                assert event["seq"] == last + 1 and event["data"][0] == event["seq"]
            last = event["seq"]
        assert gaps >= 1


def test_a_stalled_reader_of_a_strict_kind_is_closed_and_can_resume(small, user):
    channel = f"strict#{user}"
    count = 400
    with Socket(small, user=user, receive_bytes=4096) as stalled, Socket(small, user=f"{user}-other") as other:
        stalled.ok("subscribe", channel=channel)
        other.ok("subscribe", channel=f"{channel}-other")
        session = stalled.hello["session"]
        with Socket(small, user="publisher") as publisher:
            for number in range(1, count + 1):
                publisher.ok("publish", channel=channel, data=[number, "x" * 30_000])
        frames, _ = stalled.closing()
        received = [frame["seq"] for frame in frames if frame.get("event") == "message"]
        assert received == list(range(1, len(received) + 1)), "no events are missing before the close"
        assert len(received) < count
        with Socket(small, user=user) as back:
            assert back.ok("hello", session=session, seq=len(received))["resumed"] is True
        assert "ok" in other.call("ping")
