"""Three servers on each combination of engines: events, members, watchlists and the end of connections reach all of them, through a
kill, a cut and a rolling restart."""
import itertools

import pytest

from pusher.world import GRACE_S, WAIT, App
from support.process import until
from support.proxy import TcpProxy

APP = App(1)
CONFIG = APP.config + "[nodes]\nheartbeat_ms = 500\nlease_ms = 4000\n"
# The grace period of the tests that stop servers: longer than pusher-js takes to come back.
LONG_GRACE = CONFIG.replace(f"grace_ms = {GRACE_S * 1000}", "grace_ms = 60000")
COUNT = itertools.count(1)


@pytest.fixture(scope="module")
def servers(combination):
    with combination.cluster(3, CONFIG) as servers:
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


def test_a_watchlist_reaches_over_all_servers(clients, servers):
    ann, bob = (f"{name}-{next(COUNT)}" for name in ("ann", "bob"))
    api = clients.server(APP, servers[0])

    def signed_in(server, user, *watchlist):
        client = on(clients, server, user, account={"id": user, "watchlist": list(watchlist)})
        client.do("signin")

        def arrived():
            api.call("sendToUser", user, f"ready-{client.name}", "x")
            return client.events(f"user:ready-{client.name}")

        until(arrived, "the user's own channel", WAIT)
        return client

    watcher = signed_in(servers[0], ann, bob)
    first, second = (signed_in(server, bob) for server in servers[1:])
    assert watcher.waits("watchlist:online")["user_ids"] == [bob]
    first.do("disconnect")
    # Somebody else whose grace period begins later, and ends: bob is still there.
    other = signed_in(servers[1], f"{bob}-other")
    end = signed_in(servers[2], f"{ann}-end", f"{bob}-other")
    end.waits("watchlist:online")
    other.do("disconnect")
    end.waits("watchlist:offline")
    assert watcher.events("watchlist:offline") == []
    second.do("disconnect")
    assert watcher.waits("watchlist:offline")["user_ids"] == [bob]


def test_members_of_a_server_that_dies_are_removed(clients, combination):
    with combination.cluster(3, CONFIG) as servers:
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


def returned(client, before, subscriptions):
    until(lambda: client.do("state")["state"] == "connected" and client.id != before, f"{client.name} to come back", 60)
    until(lambda: len(client.events("pusher:subscription_succeeded")) >= subscriptions, f"{client.name} to subscribe again", 60)


def test_a_cut_is_not_visible(clients, combination):
    with combination.cluster(3, LONG_GRACE) as servers, TcpProxy(servers[2].port) as network:
        channel = "presence-room"
        api = clients.server(APP, servers[0])
        watchers = [on(clients, server, user).subscribe(channel) for server, user in zip(servers, ("ann", "bob"))]
        moving = on(clients, network, "cat").subscribe(channel)
        for client in watchers:
            client.has_members(channel, "ann", "bob", "cat")
        before = moving.id
        network.cut()
        until(lambda: moving.do("state")["state"] != "connected", "the cut to be noticed", WAIT)
        network.restore()
        returned(moving, before, 2)
        moving.has_members(channel, "ann", "bob", "cat")
        api.trigger(channel, "after", "x")
        for client in (*watchers, moving):
            assert client.waits("after", channel) == "x"
        for client in watchers:
            client.has_members(channel, "ann", "bob", "cat")
            assert client.events("pusher:member_removed") == []
        assert [event["data"]["id"] for event in watchers[1].events("pusher:member_added")] == ["cat"]


def test_a_rolling_restart_of_all_servers_is_not_visible(clients, combination):
    with combination.cluster(3, LONG_GRACE) as servers:
        channel, users = "presence-room", ("ann", "bob", "cat")
        api = clients.server(APP, servers[0])
        members = [on(clients, server, user).subscribe(channel) for server, user in zip(servers, users)]
        for client in members:
            client.has_members(channel, *users)
        added = [client.events("pusher:member_added") for client in members]
        for server, client in zip(servers, members):
            before = client.id
            server.terminate(timeout=40)
            server.start()
            returned(client, before, 2)
        api.trigger(channel, "after", "x")
        for client in members:
            assert client.waits("after", channel) == "x"
            client.has_members(channel, *users)
        assert [client.events("pusher:member_removed") for client in members] == [[], [], []]
        assert [client.events("pusher:member_added") for client in members] == added
