"""Sample data for the dashboard: users in channels, follows, inbox messages, a party, topics, and subscriptions in every health state.

It includes names that would be harmful as markup, except for screenshots.
"""
import contextlib

import httpx

from events.endpoint import Endpoint
from support.json_client import Socket
from support.process import free_port, until

# Sample users read only when they send, so the heartbeat must not close them.
CONFIG = "[sessions]\nheartbeat_ms = 600000\n[events]\nbackoff_min_ms = 50\nbackoff_max_ms = 60000\n"
HOSTILE = "<img src=x onerror=alert(1)>"
HOSTILE_CHANNEL = f"room#{HOSTILE}"
PEOPLE = ["ann", "bob", "carla", "dmitri", "emeka", "fatima", "gunnar", "hana"]


def client(server):
    return httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.key}"}, timeout=10, trust_env=False)


def path(text):
    return httpx.URL("http://x").copy_with(params={"q": text}).query.decode()[2:].replace("+", "%20")


def good(answer):
    assert answer.status_code < 300, answer.text
    return answer.json()


def refuses(body):
    return 400 if any(event["type"] == "refund" for event in body["events"]) else 200


class SampleData(contextlib.ExitStack):
    """Users stay connected while the object exists."""

    def __init__(self, server, harm=HOSTILE):
        super().__init__()
        self.harm = harm
        self.server = server
        self.api = self.enter_context(client(server))
        self.sockets = {}

    def connect(self, user, *channels, state=None):
        socket = self.sockets.get(user) or Socket(self.server, user=user)
        if user not in self.sockets:
            self.sockets[user] = socket
            self.callback(socket.close)
        for channel in channels:
            socket.ok("subscribe", channel=channel)
            socket.ok("join", channel=channel, state=state)
        return socket

    def create(self):
        for at, user in enumerate(PEOPLE):
            self.connect(user, "lobby#main", state={"level": at + 1})
        for user in ("ann", "bob"):
            self.connect(user, "game#1048", state={"table": 3, "seat": user})
        self.connect("carla", "gametv#1048")
        self.connect(self.harm, f"room#{self.harm}", state={"<b>": "</script><script>alert(1)</script>"} if self.harm == HOSTILE else None)
        for follower, followee in [("bob", "ann"), ("carla", "ann"), ("hana", "ann"), (self.harm, "ann"), ("ann", "bob"), ("ann", "dmitri")]:
            good(self.api.put(f"/v1/users/{path(follower)}/following/{path(followee)}"))
        # An offline user, whose inbox keeps the messages.
        for data in [{"gift": "a red scarf", "from": "carla"}, {"text": self.harm}]:
            good(self.api.post("/v1/users/igor/messages", json={"data": data}))
        self.create_party()
        self.create_subscriptions()

    def create_party(self):
        good(self.api.post("/v1/users/ann/party", json={"cmd": "invite", "user": "bob"}))
        self.party = good(self.api.get("/v1/users/ann/party"))["party"]["party_id"]
        good(self.api.post("/v1/users/bob/party", json={"cmd": "accept", "party_id": self.party}))
        good(self.api.post("/v1/users/ann/party", json={"cmd": "invite", "user": "carla"}))

    def create_subscriptions(self):
        taker = self.enter_context(Endpoint())
        picky = self.enter_context(Endpoint(refuses))
        subscriptions = {
            "billing": {"topics": ["orders", "payments"], "callback": f"{taker.url}/billing"},
            "mail": {"topics": ["orders"], "callback": f"{picky.url}/mail"},
            "warehouse": {"topics": ["orders"], "callback": f"http://127.0.0.1:{free_port()}/hook"},
            "analytics": {"topics": ["orders", "payments", "signups"], "pull": True},
            "old-crm": {"topics": ["signups"], "callback": f"{taker.url}/crm"},
        }
        for name, settings in subscriptions.items():
            good(self.api.put(f"/v1/subscriptions/{name}", json={"timeout_ms": 0} | settings))
        good(self.api.post("/v1/subscriptions/old-crm/disable"))
        kinds = ["create", "update", "refund", "update", "refund"]
        orders = [{"type": kind, "data": {"order": 7000 + n, "note": self.harm}} for n, kind in enumerate(kinds)]
        good(self.api.post("/v1/topics/orders/events", json=orders))
        good(self.api.post("/v1/topics/payments/events", json=[{"type": "paid", "data": {"cents": n * 995}} for n in range(12)]))
        good(self.api.post("/v1/topics/signups/events", json=[{"type": "joined", "data": {"n": n}} for n in range(3)]))
        until(lambda: good(self.api.get("/v1/subscriptions/mail"))["dead_letters"] == 2, "two dead letters", 20)
        until(lambda: good(self.api.get("/v1/subscriptions/warehouse"))["health"] == "failing", "a failing subscription", 20)
