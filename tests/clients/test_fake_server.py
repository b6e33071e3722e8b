"""Every client against a server that refuses hello for a while, does not reply, or sends what no Tavern sends."""
import contextlib
import time

import pytest

from . import toolchains
from .fake_tavern import FakeTavern
from .scenarios import DRIVERS, Driver, Refused, clients

WAIT_MS = 700
BUSY = {"code": "busy", "message": "too many clients at once", "retry_after_ms": WAIT_MS}
# No frames first: the client connects again.
SURPRISES = [
    "", "[]", "[" * 5_000, "null",
    '{"event":7}', '{"id":{},"ok":1}', '{"id":99,"ok":{}}', '{"id":1,"error":"no"}', '{"event":"message","channel":7,"from":"x","seq":"y"}',
    '{"event":"message","channel":"game#1","from":null,"data":1}', '{"event":"status","status":[]}', '{"event":"statuses","statuses":7}',
    '{"event":"party","cmd":[],"party_id":-1}', '{"party":"x"}', '{"event":"user_online","channel":"game#1","version":-1}',
    '{"event":"presence","channel":"game#1","left":7}', '{"event":"presence_mode","channel":"game#1","mode":7,"version":99}',
    '{"event":"gap","from":"x"}', '{"event":"revoked"}', '{"event":"inbox","message_id":"x"}', '{"event":"something_new","seq":1e400}',
]


@contextlib.contextmanager
def driver(client, server, **options):
    path, command = DRIVERS[client]
    toolchains.make(client)
    started = Driver(command(path), client, {})
    try:
        number = started.begin({"do": "connect", "url": server.url, "user": "ann", "transports": ["websocket"], "options": options})
        yield started, number
    finally:
        started.stop()


@pytest.mark.parametrize("client", clients())
def test_the_wait_that_a_refused_hello_asks_for_is_obeyed(client):
    with FakeTavern(refusals=[BUSY] * 3) as server, driver(client, server) as (one, connect):
        assert one.answer(connect) == {}
    waits = [later - earlier for earlier, later in zip(server.hellos, server.hellos[1:])]
    assert len(waits) == 3 and min(waits) >= WAIT_MS / 1000
    # The backoff comes on top, so that not all clients come back at once.
    assert max(waits) > WAIT_MS / 1000 + 0.01


@pytest.mark.parametrize("client", clients())
def test_a_call_without_a_reply_ends_with_its_limit_and_says_whether_it_may_have_been_executed(client):
    with FakeTavern(silent=["publish", "join"]) as server, driver(client, server, command_timeout_ms=300) as (one, connect):
        assert one.answer(connect) == {}
        for command, code in [({"do": "publish", "channel": "game#1", "data": 1}, "unknown_outcome"), ({"do": "join", "channel": "game#1", "state": 1}, "timeout")]:
            began = time.monotonic()
            with pytest.raises(Refused) as refused:
                one.answer(one.begin(command))
            assert refused.value.code == code and time.monotonic() - began > 0.25


@pytest.mark.parametrize("client", clients())
def test_no_answer_of_a_hostile_server_leaves_a_call_without_an_end(client):
    with FakeTavern(surprises=SURPRISES) as server:
        number = 0
        while server.surprises:
            with driver(client, server) as (one, connect):
                assert one.answer(connect) == {}
                while server.surprises:
                    number += 1
                    surprise = server.surprises[0]
                    try:
                        assert one.answer(one.begin({"do": "follow", "user": f"user-{number}"})) == {}, surprise
                    except Refused as refused:
                        # A client may give up instead, and says so; later calls end with the same error.
                        assert refused.code == "failed", f"{surprise}: {refused}"
                        with pytest.raises(Refused, match="failed"):
                            one.answer(one.begin({"do": "follow", "user": "later"}))
                        break
        assert number >= len(SURPRISES)
