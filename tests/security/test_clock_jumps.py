"""A wall clock that is wrong for a while destroys and refuses nothing once it is right again."""
import time

import httpx
import pytest

from support import tokens
from support.clock import JumpingClock
from support.json_client import Poller, Socket, Stream
from support.process import until
from support.resp import RespConnection

DAY = 86_400
# Ages are checked when a server starts and then each minute; events must be older than a second to be deleted.
RETENTION = """
[events]
retention_ms = 1000
"""


def api(server, key=None):
    headers = {"authorization": f"Bearer {key or server.key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=10, trust_env=False)


def publish(client, topic, data):
    answer = client.post(f"/v1/topics/{topic}/events", json={"type": "t", "data": data})
    assert answer.status_code == 202, answer.text


def pulled(client, name):
    answer = client.get(f"/v1/subscriptions/{name}/events", params={"wait_ms": 0})
    assert answer.status_code == 200, answer.text
    return [event.get("data") for event in answer.json()["events"]]


@pytest.fixture
def server():
    with JumpingClock("serve") as running:
        yield running


@pytest.mark.parametrize("jump", [8 * DAY, -8 * DAY, 1_000 * DAY], ids=["+8 days", "-8 days", "+1000 days"])
def test_a_short_jump_is_reported_and_changes_nothing(server, jump):
    with api(server) as client, Socket(server, token=tokens.token("ann", ttl=3600)) as ann:
        before = client.get("/v1/overview").json()
        server.jump(jump)
        until(lambda: server.metric("tavern_clock_jumps_total") == 1, "the jump to be noticed")
        during = client.get("/v1/overview").json()
        assert abs(during["now"] - before["now"]) < 60_000, "node time continues as before"
        assert abs(during["clock"]["jump_ms"] - jump * 1000) < 60_000 and during["clock"]["warning"]
        ready = client.get("/readyz")
        assert ready.status_code == 200 and "clock:" in ready.text
        assert "clock jumped" in server.log()
        assert "ok" in ann.call("ping"), "an open connection stays open"
        server.jump(0)
        until(lambda: client.get("/v1/overview").json()["clock"]["jump_ms"] == 0, "the clock to agree again")
        assert client.get("/readyz").text == "ready\n"
        with Socket(server, token=tokens.token("bob")) as bob:
            assert bob.hello["user"] == "bob", "a fresh token is accepted at once"


def test_fresh_tokens_are_accepted_once_the_clock_is_right_on_every_transport(server):
    server.jump(DAY)
    until(lambda: server.metric("tavern_clock_jumps_total") == 1, "the jump to be noticed")
    server.jump(0)
    fresh = tokens.token("ann", ttl=60)
    with Socket(server, token=fresh) as socket:
        assert socket.hello["user"] == "ann"
    with Poller(server, token=fresh) as poller:
        assert poller.ok("hello")["user"] == "ann"
    with Stream(server, token=fresh) as stream:
        assert stream.greeting()["user"] == "ann"
    redis = RespConnection(server.resp_port)
    assert redis.call("AUTH", fresh) == "OK"
    redis.close()


def test_a_jump_closes_no_connection_and_an_expired_token_still_ends(server, channel):
    with Socket(server, token=tokens.token("ann", ttl=5)) as short, Socket(server, token=tokens.token("bob")) as long:
        began = time.monotonic()
        server.jump(DAY)
        until(lambda: server.metric("tavern_clock_jumps_total") == 1, "the jump to be noticed")
        assert "ok" in short.call("ping"), "the token still has seconds"
        server.jump(-DAY)
        _, code = short.closing(timeout=15)
        assert code == 4001 and time.monotonic() - began < 12, "it ends when it would have ended"
        assert "ok" in long.call("ping")


def test_undelivered_events_survive_a_restart_with_a_wrong_clock():
    with JumpingClock("serve", RETENTION) as server:
        with api(server) as client:
            client.put("/v1/subscriptions/Sub", json={"topics": ["t"], "pull": True}).raise_for_status()
            publish(client, "t", 1)
            assert client.get("/v1/subscriptions/Sub").json()["queued"] == 1
        server.terminate()
        server.jump(8 * DAY)
        server.start()
        assert server.metric("tavern_clock_confirmed") == 0
        # The first check of the ages runs two seconds after the start.
        time.sleep(6)
        server.terminate()
        server.jump(0)
        server.start()
        with api(server) as client:
            assert server.metric("tavern_clock_confirmed") == 0, "the stored time is ahead"
            assert "stored time is ahead of the clock" in server.log()
            assert "ahead of the clock" in client.get("/readyz").text
            time.sleep(6)
            assert pulled(client, "Sub") == [1]
        findings = server.run("doctor", "--config", server.config, "--data", server.data).stdout
        assert "ahead of the clock" in findings, findings


def test_after_a_start_with_a_wrong_clock_ages_are_judged_by_the_right_one():
    with JumpingClock("serve", RETENTION + "[clock]\nconfirm_ms = 8000\n") as server:
        with api(server) as client:
            client.put("/v1/subscriptions/Sub", json={"topics": ["t"], "pull": True}).raise_for_status()
            publish(client, "t", "before")
        server.terminate()
        server.jump(8 * DAY)
        server.start()
        with api(server) as client:
            publish(client, "t", "with a clock that is ahead")
        server.terminate()
        server.jump(0)
        server.start()
        with api(server) as client:
            assert server.metric("tavern_clock_confirmed") == 0
            assert pulled(client, "Sub") == ["before", "with a clock that is ahead"]
            until(lambda: server.metric("tavern_clock_confirmed") == 1, "the clock to be confirmed", 30)
            assert "that much later" in client.get("/readyz").text
            # The first event is older than a second by the right clock, the second is not.
            until(lambda: pulled(client, "Sub")[0] != "before", "the first event to be dropped", 30)
            assert pulled(client, "Sub")[-1] == "with a clock that is ahead"


def test_a_jump_that_holds_is_accepted():
    with JumpingClock("serve", "[clock]\nconfirm_ms = 3000\n") as server, api(server) as client:
        before = client.get("/v1/overview").json()["now"]
        server.jump(3_600)
        until(lambda: server.metric("tavern_clock_jumps_total") == 1, "the jump to be noticed")
        until(lambda: client.get("/v1/overview").json()["now"] - before > 3_500_000, "the jump to be accepted")
        assert "clock jump accepted" in server.log()
        assert server.metric("tavern_clock_ahead_seconds") == 0
