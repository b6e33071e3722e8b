"""Three servers: events, members and the end of connections reach all of them, through a restart and a kill."""
import itertools

import pytest

from cluster.combination import Combination, Engines
from pusher.world import GRACE_S, WAIT, App
from support.process import until

APP = App(1)
CONFIG = APP.config + "[nodes]\nheartbeat_ms = 500\nlease_ms = 4000\n"
# The grace period of the tests that stop servers: longer than pusher-js takes to come back.
LONG_GRACE_S = 30
COUNT = itertools.count(1)


@pytest.fixture(scope="module")
def engines():
    with Engines() as engines:
        yield engines


@pytest.fixture(scope="module", params=["sqlite+local", "postgres+nats", "redis+redis"])
def servers(request, engines):
    with Combination(request.param, engines).cluster(3, CONFIG) as servers:
        yield servers


def on(clients, server, user, **how):
    return clients.client(APP, server, user={"user_id": user}, **how).connected()


def test_three_servers_are_one(clients, servers):
    room = f"cluster-{next(COUNT)}"
    api = clients.server(APP, servers[0])
    channel, private = f"presence-{room}", f"private-{room}"
    ann, bob, cat = (on(clients, server, user).subscribe(channel).subscribe(private) for server, user in zip(servers, ("ann", "bob", "cat")))
    everybody = (ann, bob, cat)
    for client in everybody:
        client.has_members(channel, "ann", "bob", "cat")
    api.trigger(channel, "moved", {"x": 1}, socket_id=bob.id)
    ann.trigger(private, "client-typing", {"on": 1})
    assert cat.waits("moved", channel) == {"x": 1} and cat.waits("client-typing", private) == {"on": 1}
    assert bob.waits("client-typing", private) == {"on": 1}
    api.trigger(channel, "end", "x")
    assert bob.waits("end", channel) == "x" and bob.events("moved") == []
    # Another tab on another server is the same member.
    tab = on(clients, servers[2], "ann").subscribe(channel)
    ann.do("unsubscribe", channel=channel)
    api.trigger(channel, "barrier", "x")
    bob.waits("barrier", channel)
    assert bob.events("pusher:member_removed") == []
    tab.do("unsubscribe", channel=channel)
    for client in (bob, cat):
        assert client.waits("pusher:member_removed", channel)["id"] == "ann"
    assert sorted(user["id"] for user in api.get(f"/channels/{channel}/users")["users"]) == ["bob", "cat"]


def test_connections_of_a_user_end_on_every_server(clients, servers):
    user = f"eve-{next(COUNT)}"
    api = clients.server(APP, servers[0])
    both = [on(clients, server, user, account={"id": user}) for server in servers[1:]]
    for client in both:
        client.do("signin")

        def arrived(client=client):
            api.call("sendToUser", user, f"ready-{client.name}", "x")
            return client.events(f"user:ready-{client.name}")

        until(arrived, "the user's own channel", WAIT)
    assert api.call("terminateUserConnections", user)["status"] == 200
    for client in both:
        until(lambda: client.do("state")["state"] == "disconnected", f"the end: {client.do('seen')}", WAIT)


def test_members_of_a_server_that_dies_are_removed(clients, engines):
    with Combination("sqlite+local", engines).cluster(3, CONFIG) as servers:
        channel = "presence-room"
        clients.server(APP, servers[0])
        watcher = on(clients, servers[0], "ann").subscribe(channel)
        other = on(clients, servers[1], "bob").subscribe(channel)
        gone = on(clients, servers[2], "cat").subscribe(channel)
        tab = on(clients, servers[1], "dora").subscribe(channel)
        on(clients, servers[2], "dora").subscribe(channel)
        for client in (watcher, other, gone, tab):
            client.has_members(channel, "ann", "bob", "cat", "dora")
        servers[2].kill()
        for client in (watcher, other):
            # Dora has another tab on a server that lives.
            client.has_members(channel, "ann", "bob", "dora", timeout=WAIT + GRACE_S + 10)
            assert [event["data"]["id"] for event in client.events("pusher:member_removed")] == ["cat"]


def test_a_restart_is_not_visible(clients, engines):
    config = CONFIG.replace(f"grace_ms = {GRACE_S * 1000}", f"grace_ms = {LONG_GRACE_S * 1000}")
    with Combination("sqlite+local", engines).cluster(3, config) as servers:
        channel = "presence-room"
        api = clients.server(APP, servers[0])
        watcher = on(clients, servers[0], "ann").subscribe(channel)
        moving = on(clients, servers[1], "bob").subscribe(channel)
        watcher.has_members(channel, "ann", "bob")
        first = moving.id
        servers[1].terminate(timeout=40)
        servers[1].start()
        until(lambda: moving.do("state")["state"] == "connected" and moving.id != first, "bob to come back", 60)
        until(lambda: len(moving.events("pusher:subscription_succeeded")) == 2, "bob to subscribe again", 60)
        moving.has_members(channel, "ann", "bob")
        api.trigger(channel, "after", "x")
        assert moving.waits("after", channel) == "x" and watcher.waits("after", channel) == "x"
        assert watcher.events("pusher:member_removed") == []
        assert len(watcher.events("pusher:member_added")) == 1
