"""Servers, connections of applications, connections of servers and Postgres itself are killed while applications publish and emit
from SQL. Afterwards history and log have every committed call once and in order, and nothing else; subscribers of a channel
without history have received no call twice, and only committed ones.

TAVERN_SQL_KILLS is the number of kills over both combinations: default 40; `make torture-sql` uses 500. TAVERN_SQL_SEED selects
another schedule."""
import collections
import contextlib
import itertools
import json
import math
import os
import random
import threading
import time

import psycopg
import pytest
import websockets.exceptions

from cluster.combination import Combination, Engines
from cluster.sql_world import ONLY, begun
from support.json_client import Socket
from support.process import until

KILLS = math.ceil(int(os.environ.get("TAVERN_SQL_KILLS", "40")) / 2)
SEED = int(os.environ.get("TAVERN_SQL_SEED", "7"))
APPLICATIONS = 4
# In each turn one of each.
KINDS = ("application", "server", "application", "database", "connections of servers")


@pytest.fixture
def world(combination):
    """On a Postgres of its own, which no other test misses while it is down."""
    with Engines() as engines, begun(Combination(combination.name, engines)) as world:
        yield world


def channel_of(number):
    """A history keeps 10,000 messages: this many of each application share one."""
    return f"chat#k{number // 1000}"


def sell(world, n, stop):
    """An application: what it writes to its own table decides what must be delivered."""
    rng, numbers = random.Random(f"{SEED} {n}"), itertools.count()
    while not stop.is_set():
        with contextlib.suppress(psycopg.Error), world.connect() as app:
            while not stop.is_set():
                with app.transaction():
                    for _ in range(rng.randint(1, 5)):
                        number = next(numbers)
                        data = json.dumps([n, number])
                        app.execute("INSERT INTO sales VALUES (%s, %s)", [n, number])
                        app.execute("SELECT publish(%s, %s)", [channel_of(number), data])
                        app.execute("SELECT publish('room#k', %s)", [data])
                        app.execute("SELECT emit('killed', 'x', %s)", [data])
                    if rng.random() < 0.2:
                        raise psycopg.Rollback
                time.sleep(0.005)
        time.sleep(0.01)


def listen(server, stop, received):
    """A user who connects again and again."""
    while not stop.is_set():
        # What is not there yet, or not any more.
        with contextlib.suppress(OSError, AssertionError, websockets.exceptions.WebSocketException), Socket(server, user="ann") as ann:
            ann.ok("subscribe", channel="room#k")
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    event = ann.event(0.2)
                    received += [tuple(event["data"])] if event["event"] == "message" else []
        time.sleep(0.01)


def kill(world, kind, rng):
    if kind == "server":
        server = rng.choice(world.servers)
        server.kill()
        server.start()
    elif kind == "database":
        world.postgres.stop()
        world.postgres.start()
    else:
        name, most = ("shop", 1) if kind == "application" else ("tavern", 3)
        sql = (f"SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE application_name = '{name}' "
               f"ORDER BY random() LIMIT {most}) AS chosen")
        until(lambda: world.postgres.sql(sql) != "0", f"connections of {name}", timeout=60)


@ONLY
def test_every_committed_call_counts_once_while_everything_is_killed(world):
    rng, stop, killed = random.Random(SEED), threading.Event(), collections.Counter()
    with world.connect() as app:
        app.execute("CREATE TABLE sales (application INT, number INT)")
    received = [[] for _ in world.servers]
    listeners = [threading.Thread(target=listen, args=(server, stop, into)) for server, into in zip(world.servers, received)]
    closed = threading.Event()
    applications = [threading.Thread(target=sell, args=(world, n, closed)) for n in range(APPLICATIONS)]
    [thread.start() for thread in [*listeners, *applications]]
    try:
        for kind in itertools.islice(itertools.cycle(KINDS), KILLS):
            time.sleep(rng.uniform(0.05, 0.25))
            kill(world, kind, rng)
            killed[kind] += 1
    finally:
        closed.set()
        [thread.join() for thread in applications]
        try:
            until(lambda: world.queued() == 0, "the queue is empty", timeout=120)
        finally:
            stop.set()
            [thread.join() for thread in listeners]
    with world.connect() as app:
        sold = app.execute("SELECT application, number FROM sales ORDER BY 1, 2").fetchall()
    print(f"{world.combination}: killed {dict(killed)}, {len(sold):,} calls of each kind committed, "
          f"{sum(map(len, received)):,} messages without history received by {len(received)} users")
    assert len(sold) > 100
    stored = [data for channel in sorted({number // 1000 for _, number in sold}) for data in world.history(f"chat#k{channel}")]
    for found in (world.events("killed"), stored):
        assert sorted(map(tuple, found)) == sold, "every committed call once, and no other"
        for n in range(APPLICATIONS):
            assert [number for by, number in found if by == n] == [number for by, number in sold if by == n], "in order"
    for messages in received:
        assert messages and len(set(messages)) == len(messages), "at most once"
        assert set(messages) <= set(sold), "only what was committed"
