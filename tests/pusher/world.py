"""Pusher apps of a Tavern server, and their clients and servers: pusher-js and the libraries of npm and PyPI, unmodified."""
import itertools
import json
import pathlib

from events.endpoint import Endpoint
from support.browser import Driver
from support.process import until

HERE = pathlib.Path(__file__).resolve().parent
WAIT = 20.0
GRACE_S = 1
COUNT = itertools.count(1)


class App:
    def __init__(self, number, webhooks=(), **settings):
        self.webhooks = webhooks
        self.id = str(number)
        self.key = f"key-{number}"
        self.secret = f"secret-of-app-{number}-7d1f0c5e"
        self.settings = {"client_events": "true", "subscription_count": "true"} | settings

    @property
    def credentials(self):
        return {"id": self.id, "key": self.key, "secret": self.secret}

    @property
    def config(self):
        lines = [f"{name} = {value}" for name, value in self.settings.items()]
        ends = ("", "-cache", "-user", "-occupied")
        kinds = [f"[kinds.pusher-{self.id}{end}]\ngrace_ms = {GRACE_S * 1000}" for end in ends]
        head = ["[[pusher.apps]]", f'id = "{self.id}"', f'key = "{self.key}"', f'secret = "{self.secret}"']
        hooks = [
            f'[[pusher.apps.webhooks]]\nurl = "{hook.url}"\nevents = {json.dumps(hook.kinds)}\nchannel_prefix = "{hook.prefix}"'
            for hook in self.webhooks
        ]
        return "\n".join([*head, *lines, *hooks, *kinds]) + "\n"

    def channel(self, name):
        """The channel in Tavern."""
        rest = name.removeprefix("private-encrypted-").removeprefix("private-").removeprefix("presence-")
        return f"pusher-{self.id}{'-cache' if rest.startswith('cache-') else ''}#{name}"


# What a server needs to post to an endpoint on this machine.
POSTING = "[events]\nallow_http = true\nallow_private = true\n"
KINDS = [
    "channel_occupied", "channel_vacated", "member_added", "member_removed", "client_event", "cache_miss", "subscription_count",
]


class Webhook:
    """A webhook of an app, and the endpoint that gets its posts."""

    def __init__(self, kinds=KINDS, prefix="", answer=200):
        self.kinds, self.prefix = kinds, prefix
        self.endpoint = Endpoint(answer)

    @property
    def url(self):
        return self.endpoint.url

    def events(self, name=None, channel=None):
        """The events of the posts that were answered with success, in order."""
        seen = [event for post in self.endpoint.posts if post.status == 200 for event in post.body["events"]]
        return [event for event in seen if name in (None, event["name"]) and channel in (None, event["channel"])]

    def waits(self, name, channel, count=1, timeout=WAIT):
        self.endpoint.until(lambda _: len(self.events(name, channel)) >= count, timeout)
        found = self.events(name, channel)
        assert len(found) == count, found
        return found[-1]

    def settled(self, clients, app, server):
        """What comes after everything that was caused before: a channel of its own is occupied."""
        marker = f"marker-{next(COUNT)}"
        clients.client(app, server).connected().subscribe(marker)
        self.waits("channel_occupied", marker)

    def __enter__(self):
        self.endpoint.__enter__()
        return self

    def __exit__(self, *failure):
        self.endpoint.__exit__(*failure)


class Clients:
    """A Node process with clients, of one test or of a page."""

    def __init__(self, script="driver.cjs"):
        self.driver = Driver(HERE / script)
        self.count = 0

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.driver.__exit__(*failure)

    def server(self, app, server):
        self.driver.do("server", app=app.credentials, port=server.port)
        return ServerLibrary(self.driver, app)

    def client(self, app, server, **how):
        self.count += 1
        client = Client(self.driver, f"client-{self.count}")
        self.driver.do("connect", name=client.name, app=app.credentials, port=server.port, **how)
        return client


class ServerLibrary:
    """The server library of npm."""

    def __init__(self, driver, app):
        self.driver, self.app = driver, app

    def call(self, method, *args):
        return self.driver.do("call", app=self.app.id, method=method, args=list(args))

    def trigger(self, channels, event, data, **params):
        answer = self.call("trigger", channels, event, data, params)
        assert answer["status"] == 200, answer
        return answer["body"]

    def get(self, path, **params):
        answer = self.call("get", {"path": path, "params": params})
        assert answer["status"] == 200, answer
        return answer["body"]

    def refused(self, method, *args):
        return self.driver.do("refused", app=self.app.id, method=method, args=list(args))


class Client:
    """One pusher-js client."""

    def __init__(self, driver, name):
        self.driver, self.name = driver, name

    def do(self, act, **how):
        return self.driver.do(act, name=self.name, **how)

    def connected(self):
        until(lambda: self.do("state")["state"] == "connected", f"{self.name} to connect: {self.do('seen')}", WAIT)
        return self

    @property
    def id(self):
        return self.do("state")["id"]

    def subscribe(self, channel, timeout=WAIT):
        self.do("subscribe", channel=channel)
        self.waits("pusher:subscription_succeeded", channel, timeout=timeout)
        return self

    def events(self, event=None, channel=None):
        fits = lambda seen: event in (None, seen["event"]) and channel in (None, seen.get("channel"))
        return [seen for seen in self.do("seen") if fits(seen)]

    def waits(self, event, channel=None, count=1, timeout=WAIT):
        """The data of the first events with this name, once there are so many."""
        until(lambda: len(self.events(event, channel)) >= count, f"{self.name} to get {event}: {self.do('seen')}", timeout)
        found = self.events(event, channel)
        assert len(found) == count, found
        return found[-1]["data"]

    def error_codes(self):
        """pusher-js reports an error that ends the connection several times."""
        return {error["data"]["code"] for error in self.events("error")}

    def members(self, channel):
        return self.do("members", channel=channel)

    def has_members(self, channel, *users, timeout=WAIT):
        has = lambda: sorted(self.members(channel)["users"]) == sorted(users)
        until(has, f"{self.name} to see {users}: {self.do('seen')}", timeout)

    def trigger(self, channel, event, data):
        assert self.do("trigger", channel=channel, event=event, data=data)
