"""Laravel Echo, unmodified, on pusher-js: the events of a Laravel application have the names of their classes. It signs at
`/broadcasting/auth` of the application."""
import hashlib
import hmac
import http.server
import json
import threading
import urllib.parse

import pytest

from pusher.world import WAIT
from support.process import until

CREATED = "App\\Events\\OrderCreated"


def test_echo_listens_whispers_and_sees_who_is_here(clients, api, app, server, room):
    def echo(user):
        client = clients.client(app, server, user={"user_id": user, "user_info": {"name": user}}).connected()
        for kind in ("channel", "private"):
            client.do("echo", kind=kind, channel=room, events=["OrderCreated", ".order.paid"], whispers=["typing"])
            # Echo names both channels alike; the library below does not.
            client.waits("subscribed", room, count=1 if kind == "channel" else 2)
        client.do("echo", kind="join", channel=room)
        client.waits("here", room)
        return client

    ann, bob = echo("ann"), echo("bob")
    assert ann.waits("here") == [{"name": "ann"}]
    assert sorted(user["name"] for user in bob.waits("here")) == ["ann", "bob"]
    assert ann.waits("joining") == {"name": "bob"}
    api.trigger(room, CREATED, {"order": 7})
    api.trigger(f"private-{room}", "order.paid", {"order": 8})
    assert bob.waits("OrderCreated") == {"order": 7} and bob.waits(".order.paid") == {"order": 8}
    ann.do("whisper", kind="private", channel=room, event="typing", data={"on": True})
    assert bob.waits("whisper typing") == {"on": True}
    assert ann.events("whisper typing") == []
    bob.do("leave", channel=room)
    assert ann.waits("leaving") == {"name": "bob"}


class BroadcastingAuth(http.server.BaseHTTPRequestHandler):
    """What Laravel answers at `/broadcasting/auth`, for the app of the server."""

    def do_OPTIONS(self):
        self.answer(204, b"")

    def do_POST(self):
        asked = urllib.parse.parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
        (channel,), (socket,) = asked["channel_name"], asked["socket_id"]
        self.server.tokens.add(self.headers["x-csrf-token"])
        data = json.dumps({"user_id": 7, "user_info": {"name": "Ann"}}) if channel.startswith("presence-") else None
        signed = ":".join(filter(None, (socket, channel, data)))
        signature = hmac.new(self.server.app.secret.encode(), signed.encode(), hashlib.sha256).hexdigest()
        reply = {"auth": f"{self.server.app.key}:{signature}"} | ({"channel_data": data} if data else {})
        self.answer(200, json.dumps(reply).encode())

    def answer(self, status, body):
        self.send_response(status)
        # The page of the test has another origin than the application.
        for name, value in (("Origin", "*"), ("Headers", "*, x-csrf-token, content-type")):
            self.send_header(f"Access-Control-Allow-{name}", value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def laravel(app):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), BroadcastingAuth) as application:
        application.app, application.tokens = app, set()
        threading.Thread(target=application.serve_forever, daemon=True).start()
        yield application
        application.shutdown()


@pytest.mark.parametrize("broadcaster", ["pusher", "reverb"])
def test_echo_connects_by_its_own_settings(clients, api, app, server, room, laravel, broadcaster):
    clients.count += 1
    name = f"echo-{clients.count}"
    do = lambda act, **how: clients.driver.do(act, name=name, **how)
    # Those of `resources/js/echo.js`, with the host that the guide says.
    do("echoOf", settings={
        "broadcaster": broadcaster, "key": app.key, "wsHost": "127.0.0.1", "wsPort": server.port, "wssPort": server.port, "forceTLS": False,
        "enabledTransports": ["ws", "wss"], "authEndpoint": f"http://127.0.0.1:{laravel.server_port}/broadcasting/auth", "csrfToken": "token-of-the-page",
        **({"cluster": "none"} if broadcaster == "pusher" else {}),
    })
    for kind in ("channel", "private", "join"):
        do("echo", kind=kind, channel=room, events=["OrderCreated"])
    seen = lambda event: [one["data"] for one in do("seen") if one["event"] == event]
    until(lambda: len(seen("subscribed")) == 3, f"three channels: {do('seen')}", WAIT)
    assert seen("here") == [[{"name": "Ann"}]]
    api.trigger([room, f"private-{room}", f"presence-{room}"], CREATED, {"order": 7})
    until(lambda: seen("OrderCreated") == [{"order": 7}] * 3, f"the event: {do('seen')}", WAIT)
    assert api.get(f"/channels/presence-{room}/users") == {"users": [{"id": "7"}]}
    assert laravel.tokens == {"token-of-the-page"}
    do("disconnect")
