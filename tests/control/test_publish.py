"""Many messages in one request."""
import pytest

from support import tokens
from support.json_client import Socket


def test_broadcast_reaches_every_channel(serve, service):
    with Socket(serve, token=tokens.token("ann")) as socket:
        for channel in ("game#b1", "game#b2"):
            socket.ok("subscribe", channel=channel)
        done = service.call("POST", "/broadcast", channels=["game#b1", "game#b2", "user#x", "#x"], data={"x": 1})
        results = done["results"]
        assert done["failed"] == 2 and [result["channel"] for result in results] == ["game#b1", "game#b2", "user#x", "#x"]
        assert [result.get("receivers") for result in results] == [1, 1, None, None]
        assert [result["error"]["code"] for result in results[2:]] == ["not_allowed", "bad_request"]
        assert [socket.event()["channel"] for _ in range(2)] in (["game#b1", "game#b2"], ["game#b2", "game#b1"])


def test_messages_to_one_channel_keep_their_order(serve, service):
    with Socket(serve, token=tokens.token("bob")) as socket:
        socket.ok("subscribe", channel="game#order")
        messages = [{"channel": "game#order", "data": n} for n in range(300)]
        assert service.call("POST", "/publish", messages=messages)["failed"] == 0
        assert [socket.event()["data"] for _ in range(300)] == list(range(300))


def test_a_wrong_message_does_not_hinder_the_others(service):
    done = service.call("POST", "/publish", messages=[{"channel": "game#1", "data": 1}, {"data": 1}, {"channel": "game#1", "data": "x" * 70_000}])
    assert [result.get("error", {}).get("code") for result in done["results"]] == [None, "bad_request", "too_large"]


@pytest.mark.parametrize("path, body", [
    ("/publish", {"messages": [{"channel": "game#1", "data": 1}] * 1001}),
    ("/broadcast", {"channels": ["game#1"] * 1001, "data": 1}),
])
def test_too_many_messages_are_refused(service, path, body):
    assert service.refused("POST", path, 413, **body) == "too_large"


def test_a_repeated_request_with_a_key_runs_once(serve, service):
    with Socket(serve, token=tokens.token("cid")) as socket:
        socket.ok("subscribe", channel="game#once")
        for _ in range(2):
            answer = service.http.post("/broadcast", json={"channels": ["game#once"], "data": 1}, headers={"Idempotency-Key": "k1"})
            assert answer.json()["results"] == [{"channel": "game#once", "receivers": 1}]
        assert len(socket.events_so_far()) == 1
