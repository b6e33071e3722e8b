"""Follows and statuses across servers."""
import os
import signal
import time

import pytest

from support.json_client import Socket, connect_online
from support.process import until

CONFIG = """
[sessions]
resume_ms = 500
[nodes]
heartbeat_ms = 200
lease_ms = 3000
[kinds.user]
grace_ms = 1500
[kinds.game]
grace_ms = 1500
[presence]
disconnect_coalesce_ms = 2500
"""


@pytest.fixture(scope="module")
def three(combination):
    with combination.cluster(3, CONFIG) as servers:
        yield servers


def summary(event):
    status = event["status"]
    state = ("leaving" if status["leaving"] else "online") if status["online"] else "offline"
    return " ".join([state, "+".join(status["channels"]), event["change"]])


def follow(server, user, followee):
    socket = Socket(server, user=user)
    socket.ok("follow", user=followee)
    first = summary(socket.event())
    return socket, first


def test_followers_on_every_server_get_the_same_events(three):
    followers = [follow(server, f"f{n}", "ann") for n, server in enumerate(three)]
    assert [first for _, first in followers] == ["offline  none"] * 3
    with Socket(three[0], user="ann") as ann:
        ann.ok("join", channel="game#A")
        for socket, _ in followers:
            assert [summary(socket.event()) for _ in range(2)] == ["online  none", "online game#A in_game_channel"]
        with Socket(three[1], user="ann") as tab:
            tab.ok("join", channel="game#A")
            ann.ok("bye")
            time.sleep(2.8)
            assert [socket.events_so_far() for socket, _ in followers] == [[], [], []], "the other tab is still online"
            tab.ok("bye")
        for socket, _ in followers:
            assert summary(socket.event()) == "offline  disconnected"
            socket.close()


def test_a_follow_on_one_server_reaches_tabs_on_another(three):
    with Socket(three[1], user="tab") as tab, connect_online(three[2], "bea") as bea:
        socket, first = follow(three[0], "tab", "bea")
        assert first == summary(tab.event()) == "online  none"
        socket.ok("unfollow", user="bea")
        until(lambda: tab.ok("following")["users"] == [], "the unfollow on every server")
        bea.ok("join", channel="game#B")
        time.sleep(0.3)
        assert socket.events_so_far() == [] and tab.events_so_far() == []
        socket.close()


@pytest.mark.parametrize("bye_first", [True, False])
def test_a_page_switch_between_servers_causes_no_disconnect(three, bye_first):
    name = f"cleo{bye_first}"
    page = connect_online(three[0], name)
    socket, first = follow(three[2], f"of-{name}", name)
    assert first == "online  none"
    for turn in range(6):
        old = page
        if bye_first:
            old.ok("bye")
        page = Socket(three[(turn + 1) % 2], user=name)
        if not bye_first:
            old.ok("bye")
    page.ok("join", channel="game#end")
    # The next status is that of the join: no one saw them offline. A status that was read again has no change word.
    assert summary(socket.event()) in ("online game#end in_game_channel", "online game#end none")
    page.close()
    socket.close()


def test_users_of_a_dead_server_go_offline(combination):
    with combination.cluster(2, CONFIG) as (a, b):
        dora = connect_online(a, "dora")
        socket, first = follow(b, "eve", "dora")
        assert first == "online  none"
        began = time.monotonic()
        os.kill(a.process.pid, signal.SIGKILL)
        assert summary(socket.event(10)) == "leaving  none"
        assert summary(socket.event(10)) == "offline  disconnected"
        assert time.monotonic() - began < 12
        assert dora is not None
        socket.close()


def test_visibility_applies_on_every_server(three):
    with connect_online(three[0], "gil") as gil, Socket(three[1], user="hal") as hal:
        hal.ok("follow", user="gil")
        assert summary(hal.event()) == "online  none"
        gil.ok("visibility", value="nobody")
        assert summary(hal.event()) == "offline  disconnected"
        gil.ok("join", channel="game#hidden")
        assert hal.ok("who", channel="game#hidden")["users"][0]["user"] is None
        assert hal.ok("status", users=["gil"])["statuses"][0]["online"] is False
        assert hal.events_so_far() == []
