"""Radar's clients, and the servers they talk to: the original Radar on Redis, or Tavern. Both are asked the same.

Must hold: what a client hears is compared as it came, except for what cannot be equal: ids of clients are replaced by the names of the
clients, stamps are checked and removed, and the original's habit of repeating a sender's `ack` to everybody is ignored.
"""
import pathlib
import re
import socket

from support.browser import MODULES, Driver
from support.process import Server, free_port, until

HERE = pathlib.Path(__file__).resolve().parent
GRACE_S = 2
WAIT = 20.0

CONFIG = f"""
[nodes]
heartbeat_ms = 500
lease_ms = 4000
[kinds.radar-presence]
grace_ms = {GRACE_S * 1000}
[kinds.radar-message]
history_messages = 100
"""


class Oracle(Server):
    """One server of the original."""

    name = "radar"

    def __init__(self, redis):
        super().__init__()
        self.redis = redis
        self.port = free_port()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def command(self):
        return ["node", str(HERE / "oracle.cjs"), str(MODULES), str(self.port), str(self.redis.resp_port), str(GRACE_S)]

    def ready(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False


class Runtime:
    """Where clients run: Node, or a page in Chromium."""

    def __init__(self, name, package="radar_client"):
        self.name = name
        script = "page_driver.cjs" if name == "chromium" else "node_driver.cjs"
        self.driver = Driver(HERE / script, package)
        self.clients = {}

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.driver.__exit__(*failure)

    def do(self, act, **how):
        return self.driver.do(act, **how)


class RadarClient:
    """One radar_client. Without a user type it has 2, so that a type that is lost shows."""

    def __init__(self, runtime, name, server, user=None, account="acme", user_data=None, **more):
        self.runtime, self.name, self.account = runtime, name, account
        self.key = f"{name}-{len(runtime.clients)}"
        self.user = name if user is None else user
        runtime.clients[self.key] = self
        config = {
            "host": "127.0.0.1", "port": server.port, "secure": False, "accountName": account, "userId": self.user,
            "userType": 2, "userData": {"name": name} if user_data is None else user_data,
        } | more
        self.ids = {runtime.do("connect", name=self.key, config=config)}
        self.seen = 0

    def call(self, kind, scope, op, *args, answer=True):
        """Calls an operation and returns what its callback gets: the request for an acknowledged one, else the answer."""
        return self.runtime.do("call", name=self.key, kind=kind, scope=scope, op=op, args=list(args), answer=answer)

    def presence(self, scope, op, *args, **how):
        return self.call("presence", scope, op, *args, **how)

    def online(self, scope, *data):
        self.presence(scope, "set", "online", *data)

    def offline(self, scope):
        self.presence(scope, "set", "offline")

    @property
    def id(self):
        return self.runtime.do("id", name=self.key)

    def transport(self):
        return self.runtime.do("transport", name=self.key)

    def send(self, text):
        self.runtime.do("send", name=self.key, text=text)

    def close(self):
        self.runtime.do("close", name=self.key)

    def cut(self):
        self.runtime.do("cut", name=self.key)

    def listen(self, kind, scope):
        self.runtime.do("listen", name=self.key, kind=kind, scope=scope)

    def got(self):
        return [self._named(message) for message in self.runtime.do("got", name=self.key)]

    def frames(self):
        """All frames that came, with ids of clients replaced by names."""
        self.ids.add(self.id)
        return [self._named(frame) for frame in self.runtime.do("frames", name=self.key)]

    def events(self):
        """The frames that answer nothing, from the last `hears` on."""
        return [frame for frame in self.frames() if frame["op"] not in ("ack", "get", "sync", "err")][self.seen:]

    def hears(self, *expected, timeout=WAIT):
        """The next events are exactly these. Nothing else has come when the last of them has."""
        until(lambda: len(self.events()) >= len(expected), f"{self.name} to hear {len(expected)} events: {self.events()}", timeout)
        events = self.events()
        assert events == list(expected), f"{self.name} heard {events}"
        self.seen += len(events)

    def hears_nothing_until(self, sender):
        """Nothing came before a message that `sender` publishes now."""
        scope = f"barrier-{self.key}"
        self.call("message", scope, "subscribe")
        sender.call("message", scope, "publish", "barrier")
        to = f"message:/{self.account}/{scope}"
        until(lambda: any(event["to"] == to for event in self.events()), "the barrier", WAIT)
        events = self.events()
        before = [event for event in events if event["to"] != to]
        assert before == [], f"{self.name} heard {before}"
        self.seen += len(events)

    def _named(self, frame):
        """A frame without what cannot be equal."""
        frame = dict(frame)
        if (stamp := frame.pop("stamp", None)) is not None:
            # A kept message has the stamp of its publisher.
            assert frame["op"] == "publish" or stamp["clientId"] in self.ids | {self.id}, stamp
            assert re.fullmatch(r"[0-9a-f-]{36}", stamp["id"]) and stamp["sentryId"], stamp
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp["timestamp"]), stamp
        if frame["op"] in ("publish", "set"):
            frame.pop("ack", None)
        if isinstance(frame.get("value"), dict):
            frame["value"] = self._names_of(frame["value"])
        return frame

    def _names_of(self, value):
        names = {one: client.key for client in self.runtime.clients.values() for one in client.ids}
        if "clientId" in value:
            return value | {"clientId": names.get(value["clientId"], value["clientId"])}
        if all(isinstance(user, dict) and "clients" in user for user in value.values()):
            renamed = lambda clients: {names.get(one, one): data for one, data in clients.items()}
            return {user: has | {"clients": renamed(has["clients"])} for user, has in value.items()}
        return value


def scope(to, account="acme", kind="presence"):
    return f"{kind}:/{account}/{to}"


def online(room, client, **more):
    return {"to": scope(room), "op": "online", "value": {str(client.user): 2}, "userData": {"name": client.name}} | more


def offline(room, client):
    return {"to": scope(room), "op": "offline", "value": {str(client.user): 2}}


def client_online(room, client, data=None, op="client_online"):
    value = {"userId": client.user, "clientId": client.key, "userData": {"name": client.name}}
    return {"to": scope(room), "op": op, "value": value | ({} if data is None else {"clientData": data})}


def client_offline(room, client, explicit):
    value = {"userId": client.user, "clientId": client.key}
    return {"to": scope(room), "op": "client_offline", "explicit": explicit, "value": value}
