"""Conversations from the documentation of the protocol, frame by frame: what a client sends, and what it must get. Where Tavern
answers otherwise, the difference has a name in the guide. SOCKUDO names the program of another server, which must then say the same."""
import json
import os
import pathlib
import subprocess

import pytest

from pusher.raw_client import RawClient
from pusher.test_apps import send, signed
from pusher.world import App
from support.process import free_port, until
from support.tavern import Tavern

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/guides/pusher.md"
APP = App(1)
SUCCEEDED, ERROR = "pusher_internal:subscription_succeeded", "pusher:subscription_error"


class Other:
    """Sockudo as a server with the same app."""
    trust = None

    def __init__(self, program):
        self.port = free_port()
        app = {"ID": APP.id, "KEY": APP.key, "SECRET": APP.secret, "ENABLED": "true", "ENABLE_CLIENT_MESSAGES": "true"}
        settings = {"HOST": "127.0.0.1", "PORT": str(self.port), "METRICS_ENABLED": "false", "RATE_LIMITER_ENABLED": "false"}
        variables = {"PATH": "/usr/bin:/bin"} | settings | {f"SOCKUDO_DEFAULT_APP_{name}": value for name, value in app.items()}
        self.process = subprocess.Popen([program], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        def answers():
            try:
                return send(self, "GET", "/", {})
            except OSError:
                return None

        until(answers, "the other server", 20)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Client:
    """One side of a conversation."""

    def __init__(self, server, name):
        self.raw, self.name = RawClient(server, APP, lives=True), name
        self.id = self.raw.established()

    def subscribe(self, channel, signed=True, **data):
        text = json.dumps(data) if channel.startswith("presence-") else None
        more = {}
        if channel.startswith(("private-", "presence-")):
            secret = None if signed else "a wrong secret"
            more["auth"] = self.raw.signature(":".join(filter(None, (self.id, channel, text))), secret)
        self.raw.subscribe(channel, **more, **({"channel_data": text} if text else {}))

    def sign_in(self, user, signed=True, **more):
        data = json.dumps({"id": user} | more)
        auth = self.raw.signature(f"{self.id}::user::{data}", None if signed else "a wrong secret")
        self.raw.send("pusher:signin", {"auth": auth, "user_data": data})

    def gets(self, event, **expected):
        """The next frame; `data` is compared as JSON, which must come as a text except in errors."""
        while (frame := self.raw.next())["event"] == "pusher_internal:subscription_count" != event:
            pass
        assert frame["event"] == event, f"{self.name}: {frame}"
        if isinstance(frame.get("data"), str) and frame["data"][:1] in ("{", "["):
            frame["data"] = json.loads(frame["data"])
        found = {name: frame.get(name) for name in expected}
        if isinstance(expected.get("data"), dict):
            found["data"] = {name: frame["data"].get(name) for name in expected["data"]}
        assert found == expected, f"{self.name}: {frame}"
        return frame

    def ends(self, code):
        events, closed = self.raw.end()
        assert closed == code and events[-1]["data"]["code"] == code, events


SCENARIOS = {}


def scenario(name, differs=None):
    """`differs`: how the row of the guide begins, if Tavern does something else than the documentation says."""
    def add(run):
        SCENARIOS[name] = run, differs
        return run

    return add


def trigger(server, channel, name, data, **more):
    path, body = f"/apps/{APP.id}/events", json.dumps({"name": name, "channels": [channel], "data": data} | more).encode()
    answer = send(server, "POST", path, signed(APP, "POST", path, body), body)
    assert (answer.status_code, answer.json()) == (200, {}), answer.text


@scenario("a ping is answered")
def ping(server, ann, bob):
    ann.raw.send("pusher:ping")
    ann.gets("pusher:pong")


@scenario("subscribing to a public channel")
def public(server, ann, bob):
    ann.subscribe("room")
    ann.gets(SUCCEEDED, channel="room")
    trigger(server, "room", "moved", '{"x":1}')
    ann.gets("moved", channel="room", data={"x": 1})


@scenario("an event for all but one socket")
def all_but_one(server, ann, bob):
    for each in (ann, bob):
        each.subscribe("room")
        each.gets(SUCCEEDED)
    trigger(server, "room", "first", "x", socket_id=ann.id)
    trigger(server, "room", "second", "x")
    ann.gets("second")
    bob.gets("first")
    bob.gets("second")


@scenario("subscribing twice")
def twice(server, ann, bob):
    ann.subscribe("room")
    ann.gets(SUCCEEDED)
    ann.subscribe("room")
    assert "xisting subscription" in ann.gets("pusher:error")["data"]["message"]


@scenario("a private channel with a signature")
def private(server, ann, bob):
    ann.subscribe("private-room")
    ann.gets(SUCCEEDED, channel="private-room")


@scenario("a private channel with a wrong signature", differs="a bad signature")
def forged(server, ann, bob):
    ann.subscribe("private-room", signed=False)
    ann.gets(ERROR, channel="private-room", data={"type": "AuthError", "status": 401})
    ann.raw.send("pusher:ping")
    ann.gets("pusher:pong")


@scenario("members of a presence channel")
def presence(server, ann, bob):
    ann.subscribe("presence-members", user_id="ann", user_info={"name": "Ann"})
    ann.gets(SUCCEEDED, channel="presence-members", data={"presence": {"count": 1, "ids": ["ann"], "hash": {"ann": {"name": "Ann"}}}})
    bob.subscribe("presence-members", user_id="bob", user_info={"name": "Bob"})
    assert sorted(bob.gets(SUCCEEDED)["data"]["presence"]["ids"]) == ["ann", "bob"]
    ann.gets("pusher_internal:member_added", channel="presence-members", data={"user_id": "bob", "user_info": {"name": "Bob"}})
    bob.raw.send("pusher:unsubscribe", {"channel": "presence-members"})
    ann.gets("pusher_internal:member_removed", channel="presence-members", data={"user_id": "bob"})


@scenario("a member whose connection is lost", differs="a member whose connection is lost")
def lost(server, ann, bob):
    for each in (ann, bob):
        each.subscribe("presence-lost", user_id=each.name)
        each.gets(SUCCEEDED)
    ann.gets("pusher_internal:member_added")
    bob.raw.socket.close()
    ann.gets("pusher_internal:member_removed", data={"user_id": "bob"})


@scenario("a client event reaches the others")
def client_event(server, ann, bob):
    for each in (ann, bob):
        each.subscribe("private-room")
        each.gets(SUCCEEDED)
    ann.raw.send("client-typing", {"on": True}, channel="private-room")
    bob.gets("client-typing", channel="private-room", data={"on": True})
    bob.raw.send("client-done", {}, channel="private-room")
    # Their own does not come back.
    ann.gets("client-done")


@scenario("a client event of a member says who sent it")
def client_event_of_a_member(server, ann, bob):
    for each in (ann, bob):
        each.subscribe("presence-typing", user_id=each.name)
        each.gets(SUCCEEDED)
    bob.raw.send("client-typing", {}, channel="presence-typing")
    ann.gets("pusher_internal:member_added")
    ann.gets("client-typing", channel="presence-typing", user_id="bob")


@scenario("a cache channel without an event, and with one")
def cache(server, ann, bob):
    ann.subscribe("cache-room")
    ann.gets(SUCCEEDED)
    ann.gets("pusher:cache_miss", channel="cache-room")
    trigger(server, "cache-room", "price", '{"n":1}')
    ann.gets("price")
    bob.subscribe("cache-room")
    bob.gets(SUCCEEDED)
    bob.gets("price", channel="cache-room", data={"n": 1})


@scenario("signing in")
def sign_in(server, ann, bob):
    ann.sign_in("ann")
    success = ann.gets("pusher:signin_success")
    assert json.loads(success["data"]["user_data"]) == {"id": "ann"}


@scenario("signing in with a wrong signature")
def sign_in_forged(server, ann, bob):
    ann.sign_in("ann", signed=False)
    ann.ends(4009)


@scenario("users of the watchlist come online")
def watchlist(server, ann, bob):
    ann.sign_in("ann", watchlist=["bob"])
    ann.gets("pusher:signin_success")
    bob.sign_in("bob")
    bob.gets("pusher:signin_success")
    ann.gets("pusher_internal:watchlist_events", data={"events": [{"name": "online", "user_ids": ["bob"]}]})


@scenario("a server ends the connections of a user")
def terminate(server, ann, bob):
    ann.sign_in("ann")
    ann.gets("pusher:signin_success")
    path = f"/apps/{APP.id}/users/ann/terminate_connections"
    assert send(server, "POST", path, signed(APP, "POST", path)).status_code == 200
    ann.ends(4009)


@pytest.fixture(scope="module", params=["tavern", *(["sockudo"] if "SOCKUDO" in os.environ else [])])
def server(request):
    with Tavern.serve(APP.config) if request.param == "tavern" else Other(os.environ["SOCKUDO"]) as server:
        yield server


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_conversation_of_the_documentation(server, name):
    run, differs = SCENARIOS[name]
    if differs and isinstance(server, Other):
        pytest.skip(f"Tavern differs: {differs}")
    ann, bob = Client(server, "ann"), Client(server, "bob")
    try:
        run(server, ann, bob)
    finally:
        for each in (ann, bob):
            each.raw.socket.close()


def test_each_difference_is_named_in_the_guide():
    rows = GUIDE.read_text().split("## What is different\n")[1]
    for name, (_, differs) in SCENARIOS.items():
        assert differs is None or f"| {differs} |" in rows, name
