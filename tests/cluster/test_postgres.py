"""Three servers on Postgres, as on three machines: no folder is shared, words travel over NATS or Redis."""
import contextlib
import itertools
import os
import signal

import pytest

from support.json_client import Socket
from support.nats_server import NatsServer
from support.postgres_server import PostgresServer
from support.process import until
from support.redis_server import RedisServer
from support.tavern import Tavern

CONFIG = """
[sessions]
resume_ms = 500
drain_ms = 1500
[nodes]
heartbeat_ms = 200
lease_ms = 2000
[kinds.user]
grace_ms = 1500
[kinds.game]
grace_ms = 1500
"""
SCHEMAS = itertools.count(1)


@pytest.fixture(scope="module")
def postgres():
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=[NatsServer, RedisServer], ids=["nats", "redis"])
def three(request, postgres):
    store = ["--store", postgres.url(f"tavern_{next(SCHEMAS)}")]
    with request.param() as bus, contextlib.ExitStack() as stack:
        yield [stack.enter_context(Tavern.dev(CONFIG, [*store, "--bus", bus.url])) for _ in range(3)]


@pytest.fixture
def room(channel):
    return channel.replace("room#", "game#")


def told(socket, count, timeout=10):
    events = [socket.event(timeout) for _ in range(count)]
    versions = [event["version"] for event in events]
    assert versions == list(range(versions[0], versions[0] + count)), versions
    return [" ".join([event["event"], event["user"]] + ([event["reason"]] if "reason" in event else [])) for event in events]


def test_presence_follows_moves_and_a_death(three, room):
    a, b, c = three
    with Socket(c, user="watcher") as watcher, Socket(b, user="fan") as fan:
        watcher.ok("subscribe", channel=room, presence=True)
        fan.ok("follow", user="ann")
        assert fan.event()["status"]["online"] is False
        ann, bob = Socket(a, user="ann"), Socket(b, user="bob")
        ann.ok("join", channel=room, state=1)
        bob.ok("join", channel=room)
        assert told(watcher, 4) == ["user_online ann", "client_online ann", "user_online bob", "client_online bob"]
        until(lambda: fan.event()["status"]["channels"] == [room], "the follower hears where she is")
        for server in three:
            with Socket(server, user="asker") as asker:
                assert asker.ok("who", channel=room)["count"] == 2
        # She comes back to another server: nobody notices.
        with Socket(c, user="ann") as back:
            assert back.ok("hello", session=ann.hello["session"], seq=0)["resumed"] is True
            assert watcher.events_so_far() == [] and fan.events_so_far() == []
            # The server of the other one dies.
            os.kill(b.process.pid, signal.SIGKILL)
            assert told(watcher, 2, 15) == ["client_offline bob node_down", "user_offline bob node_down"]
            back.ok("leave", channel=room)
            assert told(watcher, 2) == ["client_offline ann left", "user_offline ann left"]
        assert bob is not None


def test_a_rolling_restart_is_told_to_nobody(three, room):
    a, b, c = three
    with Socket(c, user="watcher") as watcher:
        watcher.ok("subscribe", channel=room, presence=True)
        ann = Socket(a, user="ann")
        session = ann.hello["session"]
        ann.ok("join", channel=room)
        assert told(watcher, 2) == ["user_online ann", "client_online ann"]
        for server, other in ((a, b), (b, a)):
            assert server.terminate() == 0
            back = Socket(other, user="ann")
            hello = back.ok("hello", session=session, seq=0)
            assert hello["resumed"] is True
            session = hello["session"]
            server.start()
        watcher.ok("publish", channel=room, data="still here")
        assert watcher.event()["event"] == "message" and watcher.events_so_far() == []
        assert [user["user"] for user in watcher.ok("who", channel=room)["users"]] == ["ann"]
        back.close()
