"""Apps with many channels, and what is refused: nothing is lost silently, nothing happens by half."""
import contextlib
import json
import sqlite3

from pusher.raw_client import RawClient
from pusher.test_apps import send, signed
from pusher.world import WAIT, App
from support.process import until
from support.tavern import Tavern


def member(clients, app, server, user):
    return clients.client(app, server, user={"user_id": user}).connected()


@contextlib.contextmanager
def unreadable_history(server):
    """While this lasts the store refuses to read what channels keep."""
    with contextlib.closing(sqlite3.connect(server.data / "tavern.db", timeout=10, isolation_level=None)) as database:
        database.execute("ALTER TABLE history_messages RENAME TO hidden")
        try:
            yield
        finally:
            database.execute("ALTER TABLE hidden RENAME TO history_messages")


def test_a_subscription_that_fails_half_way_is_made_again(clients):
    app, channel = App(1), "presence-cache-room"
    with Tavern.serve(app.config) as server:
        api = clients.server(app, server)
        ann = member(clients, app, server, "ann").subscribe(channel)
        api.trigger(channel, "price", {"n": 1})
        ann.waits("price", channel)
        bob = member(clients, app, server, "bob")
        with unreadable_history(server):
            bob.do("subscribe", channel=channel)
            # The libraries do not repeat a subscription that was refused, so the connection ends, and they begin again later.
            until(lambda: 4100 in bob.error_codes(), f"the end of the connection: {bob.do('seen')}", WAIT)
            assert bob.events("pusher:subscription_succeeded") == []
        bob.waits("pusher:subscription_succeeded", channel, timeout=60)
        assert bob.waits("price", channel) == {"n": 1}
        ann.has_members(channel, "ann", "bob")
        assert sorted(user["id"] for user in api.get(f"/channels/{channel}/users")["users"]) == ["ann", "bob"]
        bob.do("unsubscribe", channel=channel)
        ann.has_members(channel, "ann")


def test_a_client_with_many_channels_waits_instead_of_losing_some(clients):
    app = App(1)
    channels = [f"{prefix}{number}" for number in range(40) for prefix in ("room-", "private-", "presence-")]
    with Tavern.serve(app.config + "[limits]\ncommands_per_second = 25\n") as server:
        api = clients.server(app, server)
        ann = member(clients, app, server, "ann")
        for channel in channels:
            ann.do("subscribe", channel=channel)
        for channel in channels:
            ann.waits("pusher:subscription_succeeded", channel, timeout=60)
        assert ann.events("pusher:subscription_error") == []
        api.trigger(channels[-1], "after", "x")
        ann.waits("after", channels[-1])


def test_more_channels_than_allowed_are_refused_one_by_one(clients):
    app = App(1)
    with Tavern.serve(app.config + "[limits]\nchannels_per_session = 2\ngateway_channels = 4\n") as server:
        api = clients.server(app, server)
        ann = clients.client(app, server, account={"id": "ann", "watchlist": ["bob", "cat"]}).connected()
        for number in range(3):
            ann.subscribe(f"room-{number}")
        ann.do("signin")
        # One place is left for the watchlist of two.
        assert ann.waits("error")["code"] == 4302
        ann.do("subscribe", channel="room-3")
        assert ann.waits("pusher:subscription_error", "room-3")["status"] == 413
        bob = clients.client(app, server, account={"id": "bob"}).connected()
        bob.do("signin")
        ann.waits("watchlist:online")
        # Who is watched counts twice.
        ann.do("unsubscribe", channel="room-0")
        ann.do("unsubscribe", channel="room-1")
        ann.subscribe("room-4")
        api.trigger("room-4", "after", "x")
        ann.waits("after", "room-4")


def test_a_watchlist_of_more_than_a_hundred_says_so(app, server):
    with RawClient(server, app) as client:
        data = json.dumps({"id": "long", "watchlist": [f"user-{number}" for number in range(101)]})
        auth = client.signature(f"{client.established()}::user::{data}")
        client.send("pusher:signin", {"auth": auth, "user_data": data})
        client.waits("pusher:signin_success")
        assert client.waits("pusher:error")["data"]["code"] == 4302


def test_nothing_is_published_if_one_channel_is_wrong(clients, api, app, server, room):
    ann = clients.client(app, server).connected().subscribe(room)
    wrong = "#server-to-user-tavern:x"
    single = {"name": "never", "data": "x", "channels": [room, wrong]}
    batch = {"batch": [{"name": "never", "data": "x", "channel": name} for name in (room, wrong)]}
    for rest, body in (("events", single), ("batch_events", batch)):
        path, body = f"/apps/{app.id}/{rest}", json.dumps(body).encode()
        answer = send(server, "POST", path, signed(app, "POST", path, body), body)
        assert answer.status_code == 400 and wrong in answer.json()["error"], answer.text
    api.trigger(room, "after", "x")
    ann.waits("after", room)
    assert ann.events("never") == []
