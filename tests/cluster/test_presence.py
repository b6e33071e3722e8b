"""Presence across servers: watchers, dead, suspended and stopped nodes."""
import collections
import concurrent.futures
import contextlib
import os
import signal
import sqlite3
import time

import pytest

from cluster.combination import FOLDER
from judge.presence import View
from support.json_client import Socket
from support.process import until

CONFIG = """
[sessions]
resume_ms = 500
drain_ms = 1500
[nodes]
heartbeat_ms = 200
lease_ms = 1500
[kinds.game]
grace_ms = 1500
"""


in_the_tables = pytest.mark.only(FOLDER, reason="inserts orphaned rows into the SQLite tables")


@pytest.fixture(scope="module")
def pair(combination):
    with combination.cluster(2, CONFIG) as servers:
        yield servers


def next_events(socket, count, timeout=8):
    events = [socket.event(timeout) for _ in range(count)]
    versions = [event["version"] for event in events]
    assert versions == list(range(versions[0], versions[0] + count)), versions
    return [" ".join([event["event"], event["user"]] + ([event["reason"]] if "reason" in event else [])) for event in events]


def test_watchers_on_every_server_get_the_same_events(pair, room):
    a, b = pair
    with Socket(a, user="w1") as one, Socket(b, user="w2") as two, Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
        for watcher in (one, two):
            watcher.ok("subscribe", channel=room, presence=True)
        ann.ok("join", channel=room, state=1)
        bob.ok("join", channel=room)
        ann.ok("update", channel=room, state=2)
        bob.ok("leave", channel=room)
        expected = ["user_online ann", "client_online ann", "user_online bob", "client_online bob", "client_updated ann",
                    "client_offline bob left", "user_offline bob left"]
        assert next_events(one, 7) == expected and next_events(two, 7) == expected
        assert one.ok("who", channel=room) == two.ok("who", channel=room)


def test_tabs_of_one_user_on_two_servers_are_one_user(pair, room):
    a, b = pair
    with Socket(b, user="watcher") as watcher, Socket(a, user="ann") as one, Socket(b, user="ann") as two:
        watcher.ok("subscribe", channel=room, presence=True)
        one.ok("join", channel=room)
        two.ok("join", channel=room)
        one.ok("leave", channel=room)
        two.ok("leave", channel=room)
        assert next_events(watcher, 6) == ["user_online ann", "client_online ann", "client_online ann", "client_offline ann left",
                                    "client_offline ann left", "user_offline ann left"]


def test_a_page_switch_between_servers_keeps_the_user_online(pair, room):
    a, b = pair
    with Socket(b, user="watcher") as watcher:
        watcher.ok("subscribe", channel=room, presence=True)
        old = Socket(a, user="ann")
        old.ok("join", channel=room)
        old.drop()
        with Socket(b, user="ann") as new:
            new.ok("join", channel=room)
            time.sleep(2.5)
            events = [event["event"] for event in watcher.events_so_far()]
            assert events == ["user_online", "client_online", "client_online", "client_offline"]
            assert watcher.ok("who", channel=room)["count"] == 1


def test_concurrent_tabs_of_one_user_stay_consistent(pair, room):
    a, b = pair
    tabs = [Socket(server, user="ann") for server in pair for _ in range(4)]
    with Socket(a, user="watcher") as watcher, concurrent.futures.ThreadPoolExecutor() as pool:
        members = watcher.ok("subscribe", channel=room, presence=True)["members"]
        assert members["users"] == []
        view = View({"version": members["version"], "users": {}})
        for _ in range(5):
            list(pool.map(lambda tab: tab.ok("join", channel=room), tabs))
            list(pool.map(lambda tab: tab.ok("leave", channel=room), tabs))
        truth = watcher.ok("who", channel=room)
        assert truth["count"] == 0
        events = []
        until(lambda: events.extend(watcher.events_so_far()) or events and events[-1]["version"] >= truth["version"], "the last leave")
        assert [wrong for event in events if (wrong := view.apply(event | {"what": event["event"]}))] == [], "versions increase by one, online and offline alternate"
        assert (view.users, view.version) == ({}, truth["version"])
        names = collections.Counter(event["event"] for event in events)
        # A server that lags behind reports several changes at once.
        assert "presence" in names or names["client_online"] == names["client_offline"] == 40, names
    for tab in tabs:
        tab.close()


def test_only_the_clients_of_a_dead_server_go_offline(combination, room):
    with combination.cluster(2, CONFIG) as (a, b):
        with Socket(b, user="watcher") as watcher, Socket(b, user="bob") as bob:
            watcher.ok("subscribe", channel=room, presence=True)
            ann = Socket(a, user="ann")
            ann.ok("join", channel=room)
            bob.ok("join", channel=room)
            next_events(watcher, 4)
            os.kill(a.process.pid, signal.SIGKILL)
            a.process.wait()
            died = time.monotonic()
            assert next_events(watcher, 1) == ["client_offline ann node_down"]
            assert time.monotonic() - died < 1.5 + 5
            assert next_events(watcher, 1) == ["user_offline ann node_down"]
            assert [user["user"] for user in watcher.ok("who", channel=room)["users"]] == ["bob"]


def test_a_server_suspended_past_its_lease_announces_its_clients_again(combination, room):
    with combination.cluster(2, CONFIG) as (a, b):
        with Socket(b, user="watcher") as watcher:
            watcher.ok("subscribe", channel=room, presence=True)
            ann = Socket(a, user="ann")
            ann.ok("join", channel=room, state="here")
            next_events(watcher, 2)
            os.kill(a.process.pid, signal.SIGSTOP)
            try:
                # A server suspended inside a Postgres transaction keeps its row locked for ten seconds.
                assert next_events(watcher, 2, timeout=15) == ["client_offline ann node_down", "user_offline ann node_down"]
            finally:
                os.kill(a.process.pid, signal.SIGCONT)
            assert next_events(watcher, 2) == ["user_online ann", "client_online ann"], "announced without a command"
            assert watcher.ok("who", channel=room)["users"][0]["clients"][0]["state"] == "here"
            ann.ok("leave", channel=room)
            assert next_events(watcher, 2) == ["client_offline ann left", "user_offline ann left"]


def test_clients_of_a_stopped_server_stay_for_the_grace_period(combination, room):
    with combination.cluster(2, CONFIG) as (a, b):
        with Socket(b, user="watcher") as watcher:
            watcher.ok("subscribe", channel=room, presence=True)
            ann = Socket(a, user="ann")
            ann.ok("join", channel=room)
            next_events(watcher, 2)
            stopped = time.monotonic()
            assert a.terminate() == 0
            assert next_events(watcher, 2) == ["client_offline ann lost", "user_offline ann lost"]
            assert time.monotonic() - stopped > 1.2, "not before the grace period ends"


@in_the_tables
def test_orphaned_presences_are_swept(combination, room):
    config = CONFIG + "[presence]\nsweep_ms = 300\nsweep_age_ms = 500\n"
    with combination.cluster(2, config) as (a, b):
        with Socket(a, user="watcher") as watcher, Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
            watcher.ok("subscribe", channel=room, presence=True)
            ann.ok("join", channel=room)
            bob.ok("join", channel=room)
            next_events(watcher, 4)
            # As if the folder was restored from an old backup: rows of a node that does not exist.
            with sqlite3.connect(a.data / "tavern.db", timeout=10) as tables:
                tables.execute("UPDATE user_channel_presences SET node = 'gone', epoch = 1 WHERE user_id = 'bob'")
            tables.close()
            assert next_events(watcher, 2) == ["client_offline bob node_down", "user_offline bob node_down"]
            assert [user["user"] for user in watcher.ok("who", channel=room)["users"]] == ["ann"]
            # In the channel and in the user's own channel.
            swept = lambda: sum(server.metric("tavern_presences_swept_total") for server in (a, b))
            until(lambda: swept() == 2, "the sweep to be counted", 5)


def insert_orphans(data, users):
    """As if the folder was restored from an old backup: users in two channels, on a node that does not exist."""
    with contextlib.closing(sqlite3.connect(data / "tavern.db", timeout=10)) as tables, tables:
        for room in ("game#one", "game#two"):
            tables.execute("INSERT INTO channel_presences VALUES (?, 1, ?, 1)", (room, users))
            tables.executemany(
                "INSERT INTO presences (channel_name, user_id, version, anonymous, since, visibility) VALUES (?, ?, 1, 0, 1, 'everyone')",
                ((room, f"u{n}") for n in range(users)))
            tables.executemany(
                "INSERT INTO user_channel_presences (user_id, channel_name, connection_id, node, epoch, since) VALUES (?, ?, ?, 'gone', 1, 1)",
                ((f"u{n}", room, f"{n:016d}") for n in range(users)))


@in_the_tables
def test_a_server_killed_during_a_sweep_leaves_no_half_removed_users(combination):
    users, left = 4000, set()
    with combination.cluster(1, CONFIG + "[presence]\nsweep_ms = 200\nsweep_age_ms = 500\n") as (a,):
        a.terminate()
        insert_orphans(a.data, users)
        for _ in range(12):
            a.start()
            with contextlib.closing(sqlite3.connect(f"file:{a.data}/tavern.db?mode=ro", uri=True)) as tables:
                there = lambda: tables.execute("SELECT count(*) FROM presences").fetchone()[0]
                before = there()
                until(lambda: there() < before or before == 0, "the sweep to start")
                a.kill()
                halves = tables.execute("SELECT user_id FROM presences GROUP BY user_id HAVING count(*) <> 2").fetchall()
                clients = tables.execute("SELECT count(*) FROM user_channel_presences").fetchone()[0]
                assert halves == [] and clients == there()
                left.add(there())
            if min(left) == 0:
                break
        assert len(left - {0, users * 2}) >= 2, "the kill hit the middle of a sweep"
