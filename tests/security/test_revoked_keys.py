"""A key that is revoked while its request arrives or waits does nothing more, and is in the audit trail."""
import json
import os
import signal
import threading

import httpx

from support.http_connection import Connection
from support.process import until
from support.redis_server import RedisServer
from support.tavern import Tavern


def api(server, key):
    return httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {key}"}, timeout=30, trust_env=False)


def id_of(key):
    return key.split("_")[1]


def audited(server, action, key, status):
    """The line of the log about an action of this key."""
    return any(
        all(part in line for part in ("audit", action, id_of(key), f"status={status}")) for line in server.log().splitlines())


class HalfSent:
    """A request whose body has begun."""

    def __init__(self, server, method, path, key, body):
        self.rest = json.dumps(body).encode()
        self.connection = Connection(server)
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(self.rest)}\r\n\r\n"
        self.connection.socket.settimeout(60)
        self.connection.send(head.encode() + self.rest[:1])

    def finish(self):
        self.connection.send(self.rest[1:])
        return self.connection.answer()


def revoke(server, key):
    """Revokes a key, and waits until the server knows it."""
    with api(server, server.key) as admin, api(server, key) as revoked:
        assert admin.delete(f"/v1/keys/{id_of(key)}").status_code == 200
        until(lambda: revoked.get("/v1/stats").status_code == 401, "the key to be refused")


def test_a_key_that_is_revoked_while_the_body_arrives_does_nothing(serve):
    requests = [
        ("POST", "/v1/keys", {"name": "backdoor", "scopes": ["admin"]}),
        ("PUT", "/v1/users/zoe/ban", {"reason": "x"}),
        ("POST", "/v1/users/zoe/disconnect", {}),
        ("PUT", "/v1/subscriptions/backdoor", {"topics": ["t"], "pull": True}),
        ("POST", "/v1/channels/game:1/messages", {"data": 1}),
        ("POST", "/v1/users/zoe/messages", {"data": 1}),
        ("POST", "/v1/users/zoe/party", {"cmd": "create"}),
    ]
    key = serve.api_key("admin", "users", "subscriptions", "publish", "parties", "presence")
    with api(serve, key) as own:
        assert own.get("/v1/stats").status_code == 200
    halves = [HalfSent(serve, method, path, key, body) for method, path, body in requests]
    revoke(serve, key)
    for half, (method, path, _) in zip(halves, requests):
        status, _, answer = half.finish()
        assert (status, answer["error"]["code"]) == (401, "unauthenticated"), f"{method} {path}"
    with api(serve, serve.key) as admin:
        assert "backdoor" not in [found["name"] for found in admin.get("/v1/keys", params={"limit": 1000}).json()["keys"]]
    until(lambda: audited(serve, "key.create", key, 401), "the attempt to be recorded")
    assert audited(serve, "user.ban", key, 401) and audited(serve, "subscription.put", key, 401)


def test_a_long_pull_of_a_revoked_key_delivers_nothing(serve):
    key = serve.api_key("subscriptions", "presence")
    with api(serve, serve.key) as admin, api(serve, key) as subscriber:
        subscriber.put("/v1/subscriptions/slow", json={"topics": ["slow"], "pull": True}).raise_for_status()
        answers = []

        def pull():
            answers.append(subscriber.get("/v1/subscriptions/slow/events", params={"wait_ms": 30_000}))

        pulling = threading.Thread(target=pull)
        pulling.start()
        revoke(serve, key)
        admin.post("/v1/topics/slow/events", json={"type": "t", "data": 1}).raise_for_status()
        pulling.join(60)
        assert answers[0].status_code == 401, answers[0].text


def test_an_action_is_recorded_when_the_store_does_not_answer():
    with RedisServer() as redis, Tavern.serve(options=["--store", redis.url, "--bus", "local"]) as server:
        key = server.api_key("admin")
        with api(server, key) as own:
            assert own.get("/v1/nodes").status_code == 200
        half = HalfSent(server, "POST", "/v1/keys", key, {"name": "new", "scopes": ["admin"]})
        with api(server, server.key) as admin:
            # Its head has been checked: this one came later and is answered.
            assert admin.get("/v1/keys").status_code == 200
        os.kill(redis.process.pid, signal.SIGSTOP)
        try:
            status, _, _ = half.finish()
            assert status == 503
            until(lambda: audited(server, "key.create", key, 503), "the attempt to be recorded", timeout=60)
        finally:
            os.kill(redis.process.pid, signal.SIGCONT)
