"""Servers with wrong clocks: the time of the store counts, so clients see no difference."""
import contextlib
import glob
import os
import signal
import time

import pytest

from support.json_client import Socket
from support.process import until
from support.tavern import Tavern

CONFIG = """
[sessions]
resume_ms = 300
[nodes]
heartbeat_ms = 200
lease_ms = 1500
[kinds.game]
grace_ms = 2000
[kinds.user]
grace_ms = 500
"""
GRACE = 2.0


class WrongClock(Tavern):
    """A server whose clock is off by some seconds."""

    def __init__(self, seconds, options):
        super().__init__("dev", CONFIG, options)
        self.seconds = seconds

    def command(self):
        library = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")[0]
        wrong = [f"LD_PRELOAD={library}", f"FAKETIME={self.seconds:+}s", "FAKETIME_DONT_FAKE_MONOTONIC=1"]
        return ["env", *wrong, *super().command()]


@pytest.fixture(params=[600, -600], ids=["ten minutes ahead", "ten minutes behind"])
def two(request, postgres, nats, schema):
    """One server with a correct clock, one with a wrong one."""
    options = ["--store", postgres.url(schema), "--bus", nats.url]
    with contextlib.ExitStack() as stack:
        right = stack.enter_context(Tavern.dev(CONFIG, options))
        yield right, stack.enter_context(WrongClock(request.param, options))


def test_timestamps_and_grace_periods_use_the_time_of_the_store(two, channel):
    right, wrong = two
    room = channel.replace("room#", "game#")
    with Socket(right, user="watcher") as watcher:
        watcher.ok("subscribe", channel=room, presence=True)
        began = time.time()
        ann = Socket(wrong, user="ann")
        ann.ok("join", channel=room)
        assert watcher.event()["event"] == "user_online"
        assert watcher.event()["event"] == "client_online"
        since = watcher.ok("who", channel=room)["users"][0]["since"] / 1000
        assert abs(since - began) < 5, "timestamps come from the store"
        ann.drop()
        lost = time.time()
        assert watcher.event(10)["event"] == "client_offline"
        gone = watcher.event(10)
        assert gone["event"] == "user_offline"
        assert GRACE - 0.1 < time.time() - lost < GRACE + 3, "the grace period has its normal length"
        assert abs(gone["last_seen"] / 1000 - lost) < 5


def test_grace_periods_of_a_dead_server_with_a_wrong_clock_end_in_time(two, channel):
    right, wrong = two
    room = channel.replace("room#", "game#")
    with Socket(right, user="watcher") as watcher:
        watcher.ok("subscribe", channel=room, presence=True)
        bob = Socket(wrong, user="bob")
        bob.ok("join", channel=room)
        assert [watcher.event()["event"] for _ in range(2)] == ["user_online", "client_online"]
        bob.drop()
        # The user is lost; then the server that runs the grace period dies. Another one ends it, by the time of the store.
        assert watcher.event(10)["event"] == "client_offline"
        os.kill(wrong.process.pid, signal.SIGKILL)
        assert watcher.event(GRACE + 8)["event"] == "user_offline"
        until(lambda: watcher.ok("who", channel=room)["count"] == 0, "the user to be offline")
