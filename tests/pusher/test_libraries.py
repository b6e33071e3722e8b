"""The libraries `pusher` and `pysher` of PyPI, unmodified."""
import json
import subprocess
import sys

import pytest

from pusher.world import HERE
from support.process import until


class PythonLibraries:
    def __init__(self):
        command = [sys.executable, "-I", str(HERE / "python_driver.py")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def do(self, act, **how):
        self.process.stdin.write(json.dumps({"do": act} | how) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "fault" not in answer, answer["fault"]
        return answer["ok"]

    def events(self, name, event):
        return [seen["data"] for seen in self.do("seen", name=name) if seen["event"] == event]

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def python(app, server):
    libraries = PythonLibraries()
    libraries.do("server", app=app.credentials, port=server.port)
    yield libraries
    libraries.close()


@pytest.fixture
def call(python, app):
    return lambda method, *args, **kwargs: python.do("call", app=app.id, method=method, args=list(args), kwargs=kwargs)


def test_the_python_server_library_does_everything(clients, api, app, server, room, call, python):
    channel = f"presence-{room}"
    ann = clients.client(app, server, user={"user_id": "ann"}, account={"id": f"ann-{room}"}).connected()
    ann.subscribe(channel).subscribe(room)
    assert call("trigger", [room, channel], "moved", {"x": "ü"}) == {}
    assert ann.waits("moved", room) == {"x": "ü"} and ann.waits("moved", channel) == {"x": "ü"}
    assert call("trigger", room, "not-for-ann", "x", ann.id) == {}
    assert call("trigger_batch", [{"channel": room, "name": "batch", "data": {"n": 1}}]) == {}
    assert ann.waits("batch", room) == {"n": 1}
    assert ann.events("not-for-ann") == []
    assert call("channels_info", f"presence-{room}", ["user_count"]) == {"channels": {channel: {"user_count": 1}}}
    assert call("channel_info", room, ["subscription_count"]) == {"occupied": True, "subscription_count": 1}
    assert call("users_info", channel) == {"users": [{"id": "ann"}]}
    ann.do("signin")

    def arrived():
        call("send_to_user", f"ann-{room}", "hello", {"n": 1})
        return ann.events("user:hello")

    # Not its `terminate_user_connections`, which asks for an address without the id of the app.
    until(arrived, "ann to get an event of their own")


def test_the_python_server_library_signs_for_clients(app, call):
    auth = call("authenticate", "private-a", "123.456")["auth"]
    assert auth.startswith(f"{app.key}:")


def test_the_python_library_is_told_what_is_wrong(app, room, python):
    refused = lambda method, *args: python.do("refused", app=app.id, method=method, args=list(args))
    assert refused("channels_info", "", ["user_count"])["error"] == "PusherBadRequest"
    assert refused("users_info", room)["error"] == "PusherBadRequest"


def test_encrypted_events_of_the_python_library_arrive(clients, api, app, server, room, call):
    channel = f"private-encrypted-{room}"
    ann = clients.client(app, server).connected().subscribe(channel)
    call("trigger", channel, "secret", {"pin": 7})
    assert ann.waits("secret", channel) == {"pin": 7}


def test_pysher_listens_and_speaks(clients, api, app, server, room, python):
    presence, private = f"presence-{room}", f"private-{room}"
    python.do("connect", name="bob", app=app.credentials, port=server.port, user_data={"user_id": "bob", "user_info": {"n": 1}})
    until(lambda: python.do("established", name="bob"), "pysher to connect")
    ann = clients.client(app, server, user={"user_id": "ann"}).connected().subscribe(presence).subscribe(private)
    succeeded = "pusher_internal:subscription_succeeded"
    for channel in (presence, private, room):
        python.do("subscribe", name="bob", channel=channel, events=["moved", "client-typing", succeeded])
    until(lambda: len(python.events("bob", succeeded)) == 3, "pysher to subscribe")
    assert json.loads(python.events("bob", succeeded)[0])["presence"]["hash"] == {"ann": None, "bob": {"n": 1}}
    assert ann.waits("pusher:member_added", presence) == {"id": "bob", "info": {"n": 1}}
    api.trigger(room, "moved", {"x": 1})
    until(lambda: python.events("bob", "moved") == ['{"x":1}'], "the event")
    ann.trigger(private, "client-typing", {"on": 1})
    until(lambda: python.events("bob", "client-typing") == ['{"on":1}'], "the client event")
    python.do("trigger", name="bob", channel=private, event="client-typing", data={"off": 1})
    assert ann.waits("client-typing", private) == {"off": 1}
    python.do("unsubscribe", name="bob", channel=presence)
    assert ann.waits("pusher:member_removed", presence)["id"] == "bob"
