"""Webhooks: signed as Pusher signs, in batches, stored until they are delivered; right on several servers and through faults."""
import json

import httpx
import pytest

from cluster.combination import Combination
from events.endpoint import script
from pusher.test_libraries import PythonLibraries
from pusher.world import GRACE_S, POSTING, WAIT, App, Webhook
from support.process import until
from support.tavern import Tavern

# A channel is vacated this long after its last subscription.
LINGER_S = 3


@pytest.fixture(scope="module")
def hook():
    with Webhook() as hook:
        yield hook


@pytest.fixture(scope="module")
def cats():
    """A second webhook of the same app, which wants little."""
    with Webhook(["channel_occupied", "client_event"], prefix="private-cat") as hook:
        yield hook


@pytest.fixture(scope="module")
def app(hook, cats):
    return App(1, webhooks=[hook, cats])


@pytest.fixture(scope="module")
def server(app):
    with Tavern.serve(app.config + App(2).config + POSTING) as server:
        yield server


def member(clients, app, server, user, **how):
    return clients.client(app, server, user={"user_id": user}, **how).connected()


def test_each_kind_of_event_is_posted(clients, api, app, server, hook, room):
    presence, private, cache = f"presence-{room}", f"private-{room}", f"cache-{room}"
    ann = member(clients, app, server, "ann").subscribe(presence)
    bob = member(clients, app, server, 7).subscribe(presence)
    ann.subscribe(private).subscribe(cache)
    ann.trigger(presence, "client-typing", {"on": True})
    ann.trigger(private, "client-done", "x")
    assert hook.waits("cache_miss", cache) == {"name": "cache_miss", "channel": cache}
    assert hook.waits("member_added", presence, 2) == {"name": "member_added", "channel": presence, "user_id": "7"}
    assert hook.waits("client_event", presence) == {
        "name": "client_event", "channel": presence, "event": "client-typing", "data": '{"on":true}', "socket_id": ann.id, "user_id": "ann",
    }
    assert hook.waits("client_event", private) == {
        "name": "client_event", "channel": private, "event": "client-done", "data": "x", "socket_id": ann.id,
    }
    assert hook.waits("subscription_count", private)["subscription_count"] == 1
    bob.do("unsubscribe", channel=presence)
    assert hook.waits("member_removed", presence)["user_id"] == "7"
    ann.do("disconnect")
    hook.waits("channel_vacated", private)
    hook.waits("channel_vacated", presence)
    names = [event["name"] for event in hook.events(channel=presence) if event["name"] != "client_event"]
    # A channel is there before its members, and goes after them.
    assert names == ["channel_occupied", "member_added", "member_added", "member_removed", "member_removed", "channel_vacated"]
    assert hook.events("subscription_count", presence) == []


def test_the_libraries_accept_the_signature(clients, api, app, server, hook, room):
    clients.client(app, server).connected().subscribe(room)
    hook.waits("channel_occupied", room)
    post = next(post for post in hook.endpoint.posts if room in post.raw.decode())
    assert post.headers["x-pusher-key"] == app.key and post.headers["content-type"] == "application/json"
    raw, wrong = post.raw.decode(), post.raw.decode().replace(room, "other")
    accepts = lambda body: api.driver.do("webhook", app=app.id, headers=post.headers, body=body)
    assert accepts(raw)["valid"] and not accepts(wrong)["valid"]
    assert accepts(raw)["events"] == post.body["events"] and post.body["time_ms"] > 0
    python = PythonLibraries()
    python.do("server", app=app.credentials, port=server.port)
    validate = lambda body: python.do("call", app=app.id, method="validate_webhook", args=[app.key, post.headers["x-pusher-signature"], body])
    assert validate(raw) == post.body and validate(wrong) is None
    python.close()


def test_a_webhook_gets_what_it_asks_for(clients, api, app, server, hook, cats, room):
    cat, dog = f"private-cat-{room}", f"private-dog-{room}"
    ann = clients.client(app, server).connected().subscribe(dog).subscribe(cat)
    for channel in (dog, cat):
        ann.trigger(channel, "client-a", "x")
    hook.waits("client_event", dog)
    cats.waits("client_event", cat)
    assert [(event["name"], event["channel"]) for event in cats.events() if room in event["channel"]] == [
        ("channel_occupied", cat), ("client_event", cat),
    ]


def test_other_apps_are_not_posted(clients, app, server, hook, room):
    other = App(2)
    clients.server(other, server)
    clients.server(app, server)
    member(clients, other, server, "eve").subscribe(f"presence-{room}").subscribe(room)
    hook.settled(clients, app, server)
    assert [event for event in hook.events() if room in event["channel"]] == []


def test_a_reload_is_not_posted(clients, api, app, server, hook, room):
    channel = f"presence-{room}"
    member(clients, app, server, "ann").subscribe(channel).subscribe(room).do("disconnect")
    again = member(clients, app, server, "ann").subscribe(channel).subscribe(room)
    again.do("unsubscribe", channel=channel)
    hook.waits("channel_vacated", channel, timeout=LINGER_S + WAIT)
    names = [event["name"] for event in hook.events(channel=channel)]
    assert names == ["channel_occupied", "member_added", "member_removed", "channel_vacated"]
    assert hook.events("channel_vacated", room) == []


def test_a_failed_post_is_repeated_in_order(clients, tmp_path):
    with Webhook(answer=script(500, 500)) as hook:
        app = App(3, webhooks=[hook])
        with Tavern.serve(app.config + POSTING) as server:
            clients.server(app, server)
            ann = clients.client(app, server).connected().subscribe("private-a")
            for number in range(5):
                ann.trigger("private-a", "client-n", number)
            hook.waits("client_event", "private-a", 5, timeout=40)
            assert [event["data"] for event in hook.events("client_event")] == list("01234")
            first, second = hook.endpoint.posts[:2]
            assert (first.status, second.status) == (500, 500) and first.raw == second.raw and first.id == second.id


def test_subscriptions_follow_the_configuration(tmp_path):
    with Webhook() as hook:
        app = App(3, webhooks=[hook])
        with Tavern.serve(app.config + POSTING) as server:
            get = lambda: httpx.get(f"{server.url}/v1/subscriptions", headers={"authorization": f"Bearer {server.key}"}, trust_env=False).json()
            until(lambda: get()["subscriptions"], "the subscription of the webhook")
            (shown,) = get()["subscriptions"]
            assert shown["owner"] == "tavern" and shown["callback"] == hook.url and shown["name"].startswith("pusher-3-")
            assert shown["topics"] == [shown["name"].replace("pusher-3-", "tavern.pusher.3.")]
            assert app.secret not in json.dumps(shown)
            server.terminate()
            server.config.write_text(App(3).config + POSTING)
            server.start()
            until(lambda: get()["subscriptions"] == [], "it to be deleted")


@pytest.fixture(scope="module")
def cluster(combination):
    with Webhook() as hook:
        app = App(1, webhooks=[hook])
        config = app.config + POSTING + "[nodes]\nheartbeat_ms = 500\nlease_ms = 4000\n"
        with combination.cluster(3, config) as servers:
            yield app, hook, servers


def test_three_servers_count_as_one(clients, cluster, room):
    app, hook, servers = cluster
    api = clients.server(app, servers[0])
    sockets = [clients.client(app, server).connected().subscribe(room) for server in servers]
    other = clients.client(app, servers[0]).connected().subscribe(f"{room}-other")
    for socket in sockets:
        until(lambda: socket.do("count", channel=room) == 3, f"three subscriptions: {socket.do('seen')}", WAIT)
    for server in servers:
        api = clients.server(app, server)
        assert api.get(f"/channels/{room}", info="subscription_count") == {"occupied": True, "subscription_count": 3}
        assert set(api.get("/channels", filter_by_prefix=room)["channels"]) == {room, f"{room}-other"}
    for socket in sockets[:2]:
        socket.do("unsubscribe", channel=room)
    until(lambda: sockets[2].do("count", channel=room) == 1, "one subscription", WAIT)
    # What comes last shows that nothing came before it.
    other.do("unsubscribe", channel=f"{room}-other")
    hook.waits("channel_vacated", f"{room}-other")
    assert hook.events("channel_vacated", room) == []
    sockets[2].do("unsubscribe", channel=room)
    hook.waits("channel_vacated", room)
    assert len(hook.events("channel_occupied", room)) == 1
    counts = [event["subscription_count"] for event in hook.events("subscription_count", room)]
    assert 3 in counts and counts[-1] == 0


def test_channels_of_a_server_that_dies_are_vacated(clients, engines):
    with Webhook() as hook:
        app = App(1, webhooks=[hook])
        config = app.config + POSTING + "[nodes]\nheartbeat_ms = 500\nlease_ms = 4000\n"
        with Combination("sqlite+local", engines).cluster(3, config) as servers:
            api = clients.server(app, servers[0])
            stays = clients.client(app, servers[0]).connected().subscribe("both").subscribe("alive")
            # Does not come back by itself.
            gone = clients.client(app, servers[2], options={"activityTimeout": 100_000}).connected().subscribe("both").subscribe("alone")
            until(lambda: stays.do("count", channel="both") == 2, "both", WAIT)
            servers[2].kill()
            gone.do("disconnect")
            hook.waits("channel_vacated", "alone", timeout=4 + GRACE_S + WAIT)
            until(lambda: stays.do("count", channel="both") == 1, f"the number of the living: {stays.do('seen')}", 30)
            assert api.get("/channels/both", info="subscription_count")["subscription_count"] == 1
            assert set(api.get("/channels")["channels"]) == {"both", "alive"}
            assert {event["channel"] for event in hook.events("channel_vacated")} == {"alone"}


def test_a_server_that_was_killed_vacates_its_channels_when_it_is_back(clients):
    with Webhook() as hook:
        app = App(1, webhooks=[hook])
        with Tavern.serve(app.config + POSTING + "[nodes]\nheartbeat_ms = 500\nlease_ms = 2000\n") as server:
            clients.server(app, server)
            gone = clients.client(app, server).connected().subscribe("room")
            hook.waits("channel_occupied", "room")
            server.kill()
            gone.do("disconnect")
            server.start()
            hook.waits("channel_vacated", "room", timeout=2 + GRACE_S + WAIT)


def test_a_rolling_restart_is_not_posted(clients, engines):
    with Webhook(["channel_occupied", "channel_vacated", "member_added", "member_removed"]) as hook:
        app = App(1, webhooks=[hook])
        config = app.config.replace(f"grace_ms = {GRACE_S * 1000}", "grace_ms = 30000") + POSTING
        with Combination("sqlite+local", engines).cluster(2, config) as servers:
            clients.server(app, servers[0])
            moving = member(clients, app, servers[1], "bob").subscribe("presence-room").subscribe("room")
            hook.waits("channel_occupied", "room")
            first = moving.id
            servers[1].terminate(timeout=40)
            servers[1].start()
            until(lambda: moving.do("state")["state"] == "connected" and moving.id != first, "bob to come back", 60)
            until(lambda: len(moving.events("pusher:subscription_succeeded")) == 4, "bob to subscribe again", 60)
            hook.settled(clients, app, servers[0])
            seen = [(event["name"], event["channel"]) for event in hook.events() if not event["channel"].startswith("marker")]
            assert sorted(seen) == [("channel_occupied", "presence-room"), ("channel_occupied", "room"), ("member_added", "presence-room")]
