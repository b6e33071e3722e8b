"""Engines that restart, stall or fail over under load: replies, events, and no acknowledged write is lost. See
docs/reference/guarantees.md."""
import contextlib
import http.client
import itertools
import json
import os
import signal
import subprocess
import threading
import time

import pytest

from support.json_client import Socket
from support.nats_server import NatsServer
from support.proxy import TcpProxy
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
grace_ms = 5000
[kinds.game]
grace_ms = 5000
[kinds.brief]
grace_ms = 0
[kinds.chat]
history_messages = 1000
"""
SCHEMAS = itertools.count(1)


@pytest.fixture(scope="module")
def postgres():
    with PostgresServer() as server:
        yield server


class RedisStore(RedisServer):
    """A Redis that survives crashes (appendfsync always). The bus is another server, so that each can fail alone."""

    def __init__(self):
        super().__init__("--appendonly", "yes")

    def url_of(self, name):
        return f"{self.url}?prefix={name}"

    def stop(self):
        self.kill()

    def pause(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def cli(self, *arguments):
        done = subprocess.run(["redis-cli", "-p", str(self.resp_port), *arguments], capture_output=True, text=True, timeout=10)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def redis():
    with RedisStore() as server:
        yield server


@contextlib.contextmanager
def pair(store, bus):
    options = ["--store", store, "--bus", bus.url]
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Tavern.dev(CONFIG, options)) for _ in range(2)]


@pytest.fixture(params=["postgres", "redis"])
def engine(request):
    """The store's server: it can be stopped, started, paused and resumed."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def two(engine):
    name = f"failures_{next(SCHEMAS)}"
    with NatsServer() as bus, pair(engine.url(name) if isinstance(engine, PostgresServer) else engine.url_of(name), bus) as servers:
        yield servers


class PostgresBus(PostgresServer):
    """A Postgres that is the bus only."""

    @property
    def url(self):
        return super().url("tavern")


BUSES = {"nats": NatsServer, "redis": RedisServer, "postgres": PostgresBus}


@pytest.fixture(params=BUSES)
def bus_pair(request, postgres):
    """The bus server, and two Tavern servers that use it."""
    with BUSES[request.param]() as bus, pair(postgres.url(f"failures_{next(SCHEMAS)}"), bus) as (a, b):
        yield bus, a, b


@pytest.fixture
def room(channel):
    return channel.replace("room#", "game#")


def readiness(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    finally:
        connection.close()


def not_ready(server, why, timeout=15):
    until(lambda: readiness(server) == (503, why), f"the server to report: {why}", timeout)


def ready(server, timeout=15):
    until(lambda: readiness(server)[0] == 200, "the server to be ready", timeout)


class Mover(threading.Thread):
    """A user who updates their state continuously and records what was acknowledged."""

    def __init__(self, server, name, room):
        super().__init__()
        self.socket, self.room, self.over = Socket(server, user=name), room, False
        self.socket.ok("join", channel=room, state=0)
        self.acknowledged, self.refusals, self.asked = 0, [], 0

    def run(self):
        while not self.over:
            self.asked += 1
            reply = self.socket.call("update", channel=self.room, state=self.asked)
            if "ok" in reply:
                self.acknowledged = self.asked
            else:
                self.refusals.append(reply["error"])
                time.sleep(reply["error"]["retry_after_ms"] / 1000)


def states(socket, room):
    users = socket.ok("who", channel=room)["users"]
    # Users without clients are about to go offline.
    return {user["user"]: user["clients"][0]["state"] if user["clients"] else "leaving" for user in users}


def test_a_store_restart_under_load_loses_no_acknowledged_write(two, engine, room):
    a, b = two
    movers = [Mover(server, f"user{n}", room) for n, server in enumerate([a, b] * 5)]
    with Socket(a, user="watcher") as watcher:
        watcher.ok("subscribe", channel=room, presence=True)
        for mover in movers:
            mover.start()
        until(lambda: all(mover.acknowledged > 5 for mover in movers), "all users to make progress")
        engine.stop()
        for server in two:
            not_ready(server, "the store does not answer")
        # Messages need no store.
        watcher.ok("publish", channel=room, data="still here")
        engine.start()
        for server in two:
            ready(server)
        before = [mover.acknowledged for mover in movers]
        until(lambda: all(m.acknowledged > n + 5 for m, n in zip(movers, before)), "all users to make progress again", 20)
        for mover in movers:
            mover.over = True
        for mover in movers:
            mover.join()
            # Commands wait through a short outage.
            assert {error["code"] for error in mover.refusals} <= {"unavailable"}
        truth = {mover.socket.hello["user"]: mover.acknowledged for mover in movers}
        assert all(mover.acknowledged == mover.asked for mover in movers), "the last update was acknowledged"
        for server in two:
            with Socket(server, user="asker") as asker:
                assert states(asker, room) == truth
        events = watcher.events_so_far()
        changes = [event for event in events if event["event"] != "message"]
        versions = [event["version"] for event in changes]
        assert versions == sorted(versions) and len(events) == len(changes) + 1
        assert not [event for event in changes if event["event"] in ("user_offline", "client_offline")], "no user went offline"
        for mover in movers:
            mover.socket.close()


def test_history_survives_the_death_of_its_store(two, engine, channel):
    a, b = two
    channel = channel.replace("room#", "chat#")
    with Socket(a, user="ann") as ann, Socket(b, user="bob") as bob, Socket(b, user="newcomer") as newcomer:
        bob.ok("subscribe", channel=channel)
        first = ann.ok("publish", channel=channel, data=0)
        acknowledged = [n for n in range(1, 40) if "ok" in ann.call("publish", channel=channel, data=n)]
        assert len(acknowledged) == 39
        engine.stop()
        refused = ann.call("publish", channel=channel, data=40)
        assert refused["error"]["code"] == "unavailable", refused
        engine.start()
        for server in two:
            ready(server)
        for n in range(41, 60):
            until(lambda: "ok" in ann.call("publish", channel=channel, data=n), "the store to take a message", 20)
            acknowledged.append(n)
        since = {"epoch": first["epoch"], "offset": first["offset"]}
        assert newcomer.ok("subscribe", channel=channel, since=since)["recovered"] is True
        for socket, expected in ((newcomer, acknowledged), (bob, [0, *acknowledged])):
            received = []
            while not received or received[-1]["data"] != 59:
                event = socket.event()
                assert event["event"] == "message", event
                received.append(event)
            offsets = [event["offset"] for event in received]
            assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), "no hole, no duplicate"
            # A message whose answer was lost may have been stored, once or, repeated, twice.
            data = [event["data"] for event in received]
            assert [n for n in dict.fromkeys(data) if n in expected] == expected


def test_a_store_outage_longer_than_every_lease_causes_no_event(two, engine, room):
    a, b = two
    room = room.replace("game#", "brief#")
    with Socket(a, user="watcher") as watcher, Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
        ann.ok("join", channel=room)
        bob.ok("join", channel=room)
        watcher.ok("subscribe", channel=room, presence=True)
        engine.stop()
        for server in two:
            not_ready(server, "the store does not answer")
        # Leases expire while no server can renew them.
        time.sleep(2.5)
        engine.start()
        for server in two:
            ready(server)
        for socket in (ann, bob):
            until(lambda: "ok" in socket.call("update", channel=room, state=1), "the store to accept writes again")
        time.sleep(2.5)
        assert [event["event"] for event in watcher.events_so_far()] == ["client_updated", "client_updated"]
        assert "fenced" not in a.log() + b.log()


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_server_that_stops_while_the_store_is_away_waits_for_it_and_keeps_its_sessions(kind, request, channel):
    store, name = request.getfixturevalue(kind), f"failures_{next(SCHEMAS)}"
    port = store.port if kind == "postgres" else store.resp_port
    with NatsServer() as bus, TcpProxy(port) as proxy:
        url = store.url(name, options="&sslmode=disable") if kind == "postgres" else store.url_of(name)
        config = CONFIG.replace("drain_ms = 1500", "drain_ms = 9000")
        with Tavern.dev(config, ["--store", url.replace(f":{port}", f":{proxy.port}"), "--bus", bus.url]) as server:
            with Socket(server, user="ann") as ann:
                ann.ok("subscribe", channel=channel)
                proxy.cut()
                not_ready(server, "the store does not answer")
                back = threading.Timer(1.0, proxy.restore)
                back.start()
                assert server.terminate() == 0, server.log()
                back.join()
            server.start()
            with Socket(server, user="ann") as again:
                hello = again.ok("hello", session=ann.hello["session"], seq=0)
                assert (hello["resumed"], hello["client"]) == (True, ann.hello["client"])


def test_a_server_cut_off_from_the_store_announces_its_clients_again(postgres, room):
    """The other servers consider it dead; once reconnected it announces its clients again."""
    schema = f"failures_{next(SCHEMAS)}"
    with NatsServer() as bus, TcpProxy(postgres.port) as proxy, contextlib.ExitStack() as stack:
        a = stack.enter_context(Tavern.dev(CONFIG, ["--store", postgres.url(schema), "--bus", bus.url]))
        far = postgres.url(schema, options="&sslmode=disable").replace(f":{postgres.port}/", f":{proxy.port}/")
        b = stack.enter_context(Tavern.dev(CONFIG, ["--store", far, "--bus", bus.url]))
        room = room.replace("game#", "brief#")
        with Socket(a, user="watcher") as watcher, Socket(b, user="bob") as bob:
            watcher.ok("subscribe", channel=room, presence=True)
            bob.ok("join", channel=room)
            names = lambda count: [(event["event"], event.get("reason")) for event in (watcher.event(15) for _ in range(count))]
            assert names(2) == [("user_online", None), ("client_online", None)]
            proxy.cut()
            not_ready(b, "the store does not answer")
            assert readiness(a)[0] == 200
            assert bob.call("update", channel=room, state=1)["error"]["code"] == "unavailable"
            assert names(2) == [("client_offline", "node_down"), ("user_offline", "node_down")]
            # Messages still work: the bus is up.
            bob.ok("publish", channel=room, data="here")
            assert watcher.event()["data"] == "here"
            proxy.restore()
            ready(b)
            assert names(2) == [("user_online", None), ("client_online", None)]
            bob.ok("update", channel=room, state=2)
            assert watcher.event()["state"] == 2


def test_a_stalled_store_delays_only_commands_that_need_it(two, engine, room):
    a, b = two
    with Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
        bob.ok("subscribe", channel=room)
        engine.pause()
        try:
            began = time.monotonic()
            ann.send('{"id":"slow","op":"join","channel":"%s"}' % room)
            with Socket(a, user="carol") as carol:
                carol.ok("publish", channel=room, data=1)
            assert bob.event()["data"] == 1, "messages do not need the store"
            for server in two:
                not_ready(server, "the store does not answer")
            reply = ann.frame(timeout=30)
            assert reply["id"] == "slow" and reply["error"]["code"] == "unavailable" and reply["error"]["retry_after_ms"] > 0
            assert time.monotonic() - began < 18, "bounded"
        finally:
            engine.resume()
        for server in two:
            ready(server)
        ann.ok("join", channel=room)
        assert list(states(bob, room)) == ["ann"]


def test_a_read_only_postgres_is_replaced_by_the_new_primary(postgres, room):
    with NatsServer() as bus, pair(postgres.url(f"failures_{next(SCHEMAS)}"), bus) as (a, _):
        fail_over(a, postgres, room)


def fail_over(a, postgres, room):
    with Socket(a, user="ann") as ann:
        ann.ok("join", channel=room)
        postgres.sql("ALTER SYSTEM SET default_transaction_read_only = on")
        postgres.sql("SELECT pg_reload_conf()")
        try:
            not_ready(a, "the store does not answer")
            reply = ann.call("update", channel=room, state=1)
            assert reply["error"]["code"] == "unavailable"
        finally:
            postgres.sql("ALTER SYSTEM RESET default_transaction_read_only")
            postgres.sql("SELECT pg_reload_conf()")
        ready(a)
        ann.ok("update", channel=room, state=2)
        assert states(ann, room) == {"ann": 2}


def test_a_redis_that_lost_all_data(redis, room):
    """Nodes are fenced by a store that does not know them, and announce their clients again. Stored data is lost."""
    with NatsServer() as bus, pair(redis.url_of(f"failures_{next(SCHEMAS)}"), bus) as (a, b):
        with Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
            ann.ok("join", channel=room, state=1)
            ann.ok("follow", user="bob")
            bob.ok("subscribe", channel=room, presence=True)
            before = bob.ok("who", channel=room)["version"]
            redis.cli("FLUSHALL")
            until(lambda: states(bob, room) == {"ann": 1}, "the client to be announced again")
            assert bob.ok("who", channel=room)["version"] > before, "versions never repeat"
            assert ann.ok("following")["users"] == []
            ann.ok("update", channel=room, state=2)
            until(lambda: "2" in str(bob.event()), "watchers to get new events")
            for server in (a, b):
                ready(server)


def test_a_redis_restored_from_an_older_state(room):
    with RedisServer() as redis, NatsServer() as bus, pair(redis.url, bus) as (a, b):
        with Socket(a, user="ann") as ann, Socket(b, user="bob") as bob, Socket(a, user="dora") as dora, Socket(b, user="wim") as watcher:
            ann.ok("join", channel=room, state=1)
            dora.ok("join", channel=room)
            there = {user["user"] for user in watcher.ok("subscribe", channel=room, presence=True)["members"]["users"]}
            assert there == {"ann", "dora"}

            def seen(events):
                for event in events:
                    came = [event["user"]] if event["event"] == "user_online" else [one["user"] for one in event.get("joined", [])]
                    gone = [event["user"]] if event["event"] == "user_offline" else [one["user"] for one in event.get("left", []) if "client" not in one]
                    there.update(came)
                    there.difference_update(gone)
                return there

            port = str(redis.resp_port)
            subprocess.run(["redis-cli", "-p", port, "SAVE"], check=True, capture_output=True, timeout=10)
            # The following joins, updates and leaves are lost with the server.
            with Socket(b, user="cid") as cid:
                cid.ok("join", channel=room)
                ann.ok("update", channel=room, state=2)
                dora.ok("leave", channel=room)
                assert states(bob, room) == {"ann": 2, "cid": None}
                redis.kill()
                redis.start()
                for server in (a, b):
                    ready(server)
                until(lambda: states(bob, room) == {"ann": 2, "cid": None}, "the store to be correct again", 15)
                until(lambda: seen(watcher.events_so_far()) == {"ann", "cid"}, "watchers to be correct")


def test_a_bus_outage(bus_pair, room, channel):
    bus, a, b = bus_pair
    with Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
        bob.ok("subscribe", channel=channel)
        ann.ok("publish", channel=channel, data=1)
        assert bob.event()["data"] == 1
        bus.kill()
        for server in (a, b):
            not_ready(server, "the bus does not answer")
        began = time.monotonic()
        reply = bob.call("subscribe", channel=channel + "other")
        assert reply["error"]["code"] == "unavailable" and reply["error"]["retry_after_ms"] > 0
        assert time.monotonic() - began < 3, "commands do not wait for the bus"
        # Local delivery continues; presence goes through the store.
        bob.ok("publish", channel=channel, data=2)
        assert bob.event()["data"] == 2
        ann.ok("join", channel=room)
        assert list(states(bob, room)) == ["ann"]
        ann.ok("publish", channel=channel, data="lost")
        bus.start()
        for server in (a, b):
            ready(server)
        assert bob.event() == {"seq": 3, "event": "gap", "channel": channel}
        until(lambda: "ok" in bob.call("subscribe", channel=channel + "other"), "the bus subscription to work again")
        ann.ok("publish", channel=channel + "other", data=3)
        until(lambda: bob.event().get("data") == 3, "messages to pass again")
        assert [event for event in bob.events_so_far() if event["event"] != "gap"] == []


def signal_bus(bus, number):
    for pid in bus.processes() if isinstance(bus, PostgresBus) else [bus.process.pid]:
        os.kill(pid, number)


def test_a_stalled_bus_delivers_everything_late(bus_pair, channel):
    bus, a, b = bus_pair
    with Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
        bob.ok("subscribe", channel=channel)
        signal_bus(bus, signal.SIGSTOP)
        try:
            for n in range(100):
                ann.ok("publish", channel=channel, data=n)
            assert a.metric("tavern_bus_up") == 1
            for server in (a, b):
                not_ready(server, "the bus does not answer", 14)
            assert a.metric("tavern_bus_up") == 0
        finally:
            signal_bus(bus, signal.SIGCONT)
        for server in (a, b):
            ready(server)
        assert [bob.event()["data"] for _ in range(100)] == [*range(100)], "late, and all of them"
        assert bob.events_so_far() == []


def test_commands_on_locked_tables_are_refused_within_their_time(postgres):
    """A command keeps the deadline of its arrival in every queue in front of the store."""
    url = postgres.url(f"locked_{next(SCHEMAS)}")
    with Tavern.dev(CONFIG, options=["--store", url, "--bus", "local"]) as server:
        schema = url.split("schema=")[1].split("&")[0]
        names = ("presences", "history_messages", "histories", "inbox_messages", "inboxes", "documents")
        locks = ", ".join(f"{schema}.{name}" for name in names)
        hold = f"BEGIN; LOCK TABLE {locks} IN ACCESS EXCLUSIVE MODE; SELECT 'locked'; SELECT pg_sleep(60)"
        run = ["psql", "-X", "-q", "-A", "-t", "-h", "127.0.0.1", "-p", str(postgres.port), "-U", "postgres", "-d", "postgres", "-c", hold]
        locking = subprocess.Popen(run, stdout=subprocess.PIPE, text=True)
        took = []

        def timed(method, path, body):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            began = time.monotonic()
            connection.request(method, path, json.dumps(body), {"authorization": f"Bearer {server.key}"})
            status = connection.getresponse().status
            took.append((path, status, time.monotonic() - began))

        try:
            until(lambda: postgres.sql("SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted") != "0", "the locks")
            threads = []
            for _ in range(4):
                for path in ("/v1/channels/chat:1/messages", "/v1/users/ann/messages"):
                    threads.append(threading.Thread(target=timed, args=("POST", path, {"data": 1})))
                    threads[-1].start()
                # Not all in one batch.
                time.sleep(0.5)
            for thread in threads:
                thread.join()
        finally:
            locking.kill()
            locking.wait()
        assert len(took) == 8 and all(status == 503 and seconds < 18 for _, status, seconds in took), took
