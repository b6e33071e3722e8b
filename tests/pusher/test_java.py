"""The libraries `com.pusher:pusher-java-client` and `com.pusher:pusher-http-java` of Maven Central, unmodified."""
import json
import pathlib
import subprocess

import pytest

from pusher.world import HERE, POSTING, App, Webhook
from support.process import until
from support.tavern import Tavern

LIBRARIES = pathlib.Path(__file__).resolve().parents[2] / "target/java/lib/*"


class JavaLibraries:
    def __init__(self):
        command = ["java", "-cp", str(LIBRARIES), str(HERE / "java/Driver.java")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def do(self, act, **how):
        self.process.stdin.write(json.dumps({"do": act} | how) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "fault" not in answer, answer["fault"]
        return answer["ok"]

    def connected(self, name, user, port, **how):
        self.do("connect", name=name, user=user, port=port, **how)
        until(lambda: self.do("state", name=name) == "CONNECTED", f"{name} to connect", 20)

    def events(self, name, event, channel=None):
        seen = self.do("seen", name=name)
        return [one["data"] for one in seen if one["event"] == event and channel in (None, one["channel"])]

    def waits(self, name, event, channel=None, count=1):
        until(lambda: len(self.events(name, event, channel)) >= count, f"{event} of {channel}: {self.do('seen', name=name)}", 20)
        return self.events(name, event, channel)[-1]

    def subscribe(self, name, *channels):
        for channel in channels:
            self.do("subscribe", name=name, channel=channel)
            self.waits(name, "subscribed", channel)

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def hook():
    with Webhook() as hook:
        yield hook


@pytest.fixture(scope="module")
def app(hook):
    return App(1, webhooks=[hook])


@pytest.fixture(scope="module")
def server(app):
    with Tavern.serve(app.config + POSTING) as server:
        yield server


@pytest.fixture(scope="module")
def java(app, server):
    libraries = JavaLibraries()
    libraries.do("server", app=app.credentials, port=server.port)
    yield libraries
    libraries.close()


def ok(answer):
    assert answer["status"] == 200, answer
    return json.loads(answer["body"] or "{}")


def test_the_java_client_does_everything(clients, api, app, server, java, room):
    presence, private, secret = f"presence-{room}", f"private-{room}", f"private-encrypted-{room}"
    user = f"joe-{room}"
    ann = clients.client(app, server, user={"user_id": "ann", "user_info": {"n": 1}}).connected().subscribe(presence).subscribe(private)
    java.connected("joe", user, server.port)
    java.subscribe("joe", room, private, presence, secret)
    assert java.waits("joe", "here", presence) == sorted(["ann", user])
    assert java.do("members", name="joe", channel=presence) == {"ann": '{"n":1.0}', user: '{"of":"java"}'}
    assert ann.waits("pusher:member_added", presence) == {"id": user, "info": {"of": "java"}}
    for channel in (room, private, presence):
        api.trigger(channel, "moved", {"x": 1})
        assert json.loads(java.waits("joe", "moved", channel)["data"]) == {"x": 1}
    # Client events, both ways; in a presence channel with their sender.
    ann.trigger(presence, "client-typing", {"on": 1})
    typing = java.waits("joe", "client-typing", presence)
    assert json.loads(typing["data"]) == {"on": 1} and typing["user_id"] == "ann"
    java.do("trigger", name="joe", channel=private, event="client-done", data={"off": 1})
    assert ann.waits("client-done", private) == {"off": 1}
    # Members come and go.
    bob = clients.client(app, server, user={"user_id": "bob"}).connected().subscribe(presence)
    assert java.waits("joe", "joined", presence) == "bob"
    bob.do("unsubscribe", channel=presence)
    assert java.waits("joe", "left", presence) == "bob"
    # Encrypted by the server library of npm.
    api.trigger(secret, "pin", {"pin": 1})
    assert json.loads(java.waits("joe", "pin", secret)["data"]) == {"pin": 1}
    # Signing in, and what the server sends to the user.
    java.do("signin", name="joe")
    until(lambda: java.do("user", name="joe") == user, "joe to sign in", 20)

    def arrived():
        api.call("sendToUser", user, "hello", {"n": 1})
        return java.events("joe", "user:hello")

    until(arrived, "an event of their own", 20)
    java.do("unsubscribe", name="joe", channel=presence)
    assert ann.waits("pusher:member_removed", presence, 2)["id"] == user
    java.do("disconnect", name="joe")
    until(lambda: java.do("state", name="joe") == "DISCONNECTED", "the end")


def test_the_java_client_is_told_what_is_wrong(app, server, java, room):
    java.do("connect", name="eve", user="eve", port=server.port, key="unknown")
    until(lambda: java.events("eve", "error", "4001"), "the code of an unknown key", 20)
    until(lambda: java.do("state", name="eve") == "DISCONNECTED", "the client to stop", 20)


def test_the_java_server_library_does_everything(clients, api, app, server, java, hook, room):
    presence, encrypted = f"presence-{room}", f"private-encrypted-{room}"
    ann = clients.client(app, server, user={"user_id": "ann"}).connected().subscribe(presence).subscribe(room).subscribe(encrypted)
    assert ok(java.do("publish", channels=[room], event="one", data={"n": "ü"})) == {}
    assert ann.waits("one", room) == {"n": "ü"}
    assert ok(java.do("publish", channels=[room, presence], event="two", data=[1])) == {}
    assert ann.waits("two", room) == [1] and ann.waits("two", presence) == [1]
    assert ok(java.do("publish", channels=[room], event="not-for-ann", data=1, **{"except": ann.id})) == {}
    assert ok(java.do("batch", events=[{"channel": room, "name": f"batch-{n}", "data": n} for n in range(2)])) == {}
    assert ann.waits("batch-1", room) == 1 and ann.events("not-for-ann") == []
    assert ok(java.do("publish", channels=[encrypted], event="secret", data={"pin": 7})) == {}
    assert ann.waits("secret", encrypted) == {"pin": 7}
    get = lambda path, **params: ok(java.do("get", path=path, params=params))
    assert get("/channels", filter_by_prefix=presence, info="user_count") == {"channels": {presence: {"user_count": 1}}}
    assert get(f"/channels/{room}", info="subscription_count") == {"occupied": True, "subscription_count": 1}
    assert get(f"/channels/{presence}/users") == {"users": [{"id": "ann"}]}
    assert ok(java.do("post", path="/events", body=json.dumps({"name": "raw", "channel": room, "data": "x"}))) == {}
    assert ann.waits("raw", room) == "x"
    refused = java.do("get", path=f"/channels/{room}/users", params={})
    assert refused["status"] == 400 and "presence" in refused["body"]
    hook.waits("channel_occupied", room)
    post = next(post for post in hook.endpoint.posts if room in post.raw.decode())
    validate = lambda body: java.do("validate", key=post.headers["x-pusher-key"], signature=post.headers["x-pusher-signature"], body=body)
    assert validate(post.raw.decode()) == "VALID" and validate("{}") == "INVALID"
