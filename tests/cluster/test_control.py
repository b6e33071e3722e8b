"""Acting on users across servers, and counting them."""
import concurrent.futures
import os
import random
import signal
import time

import pytest

from control.service import Service
from support.json_client import Poller, Socket
from support.process import until

# Users who come and leave in the storm; 10,000 for a campaign (tests/README.md).
STORM = int(os.environ.get("TAVERN_STORM", "120"))
CONFIG = """
[sessions]
resume_ms = 500
[nodes]
heartbeat_ms = 200
lease_ms = 1500
[kinds.user]
grace_ms = 1000
[kinds.game]
grace_ms = 1000
"""


@pytest.fixture(scope="module")
def three(combination):
    with combination.cluster(3, CONFIG) as servers:
        yield servers


@pytest.fixture
def service(three):
    with Service(three[0]) as service:
        # Every server knows that the others live.
        until(lambda: service.stats()["cluster"]["nodes"] == 3, "three nodes")
        yield service


def test_disconnect_reaches_every_server_within_a_second(three, service, channel):
    user = "u-" + channel.removeprefix("room#")
    sockets = [Socket(server, user=user) for server in three]
    poller = Poller(three[1], user=user)
    poller.ok("hello")
    until(lambda: len(service.sessions(user)) == 4, "four sessions")
    assert {session["node"] for session in service.sessions(user)} == {socket.hello["node"] for socket in sockets}
    sockets[2].drop()
    began = time.monotonic()
    done = service.call("POST", f"/users/{user}/disconnect", reason="go")
    assert done == {"sessions": 4, "missing_nodes": []}
    assert [socket.closing()[1] for socket in sockets[:2]] == [4006, 4006]
    assert time.monotonic() - began < 1
    assert service.sessions(user) == []
    until(lambda: not service.is_online(user), "the presence to end")
    poller.http.close()


def test_a_session_does_not_come_back_on_another_server(three, service, channel):
    user = "u-" + channel.removeprefix("room#")
    socket = Socket(three[0], user=user)
    session = socket.hello["session"]
    socket.drop()
    assert service.call("POST", f"/users/{user}/disconnect")["sessions"] == 1
    with Socket(three[2]) as again:
        assert again.call("hello", token="", session=session, user=user).get("ok", {}).get("resumed", False) is False


def test_a_ban_holds_on_every_server(three, service, channel):
    user = "u-" + channel.removeprefix("room#")
    with Socket(three[1], user=user) as socket:
        assert service.call("PUT", f"/users/{user}/ban", reason="spam")["sessions"] == 1
        assert socket.closing()[1] == 4005
    for server in three:
        with Poller(server, user=user) as poller:
            assert poller.command("hello")["error"]["code"] == "blocked"
    with Service(three[2]) as other:
        other.call("DELETE", f"/users/{user}/ban")
    for server in three:
        with Poller(server, user=user) as poller:
            poller.ok("hello")


def test_an_erased_user_finds_no_old_message_on_any_server(three, service, channel):
    user = "u-" + channel.removeprefix("room#")
    with Socket(three[1], user=user) as socket:
        # Its server has the message in memory, unread.
        service.call("POST", f"/users/{user}/messages", data="before")
        assert socket.event()["data"] == "before"
        service.call("DELETE", f"/users/{user}")
        assert socket.closing()[1] == 4006
    service.call("POST", f"/users/{user}/messages", data="after")
    for server in three:
        with Socket(server, user=user) as socket:
            assert socket.event()["data"] == "after"
            assert socket.events_so_far() == []
        with Service(server) as other:
            stored = other.call("GET", f"/users/{user}/inbox")["messages"]
            assert len(stored) == 1, f"all but the new one: {stored}"


def test_a_subscription_by_the_app_gets_messages_of_every_server(three, service, channel):
    user = "u-" + channel.removeprefix("room#")
    with Socket(three[1], user=user) as one, Socket(three[2], user=user) as two:
        assert service.call("POST", f"/users/{user}/subscribe", channel=channel)["sessions"] == 2
        for socket in (one, two):
            assert socket.event()["event"] == "subscribed"
        for n, server in enumerate(three):
            with Service(server) as publisher:
                publisher.call("POST", "/broadcast", channels=[channel], data=n)
        for socket in (one, two):
            assert sorted(socket.event()["data"] for _ in range(3)) == [0, 1, 2]


def test_users_online_is_exact_after_a_storm_with_a_killed_server(combination):
    with combination.cluster(3, CONFIG) as servers:
        rng, stays = random.Random(7), {}
        count = STORM // 4
        names = min(count * 2 // 5, 250)

        def storm(worker):
            """Users come to one server or two and leave again; some stay."""
            kept = []
            for n in range(count):
                user, stay = f"s{worker}-{n % names}", n >= count - names
                sockets = [Socket(server, user=user) for server in rng.sample(servers, rng.choice((1, 2)))]
                for socket in sockets[1:] if stay else sockets:
                    socket.close()
                if stay:
                    kept.append((user, sockets[0]))
            return kept

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for kept in pool.map(storm, range(4)):
                stays |= dict(kept)
        assert len(stays) == 4 * names
        with Service(servers[0]) as service:
            service.until_online(4 * names)
            with Service(servers[2]) as dying:
                node = dying.stats()["node"]["node"]
            os.kill(servers[2].process.pid, signal.SIGKILL)
            gone = {user for user, socket in stays.items() if socket.hello["node"] == node}
            left = {user for user in stays if user not in gone}
            until(lambda: service.stats()["cluster"]["nodes"] == 2, "the killed server to be noticed", 20)
            service.until_online(len(left))
            numbers = service.stats()["cluster"]
            assert numbers["sessions"] == len(left) == numbers["connections"]["websocket"]
            for socket in stays.values():
                socket.close()
            service.until_online(0)
            until(lambda: service.stats()["cluster"]["sessions"] == 0, "the sessions to end")
