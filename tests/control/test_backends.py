"""The clients for backends, in Python and JavaScript, with a real server."""
import json
import pathlib
import subprocess
import sys
import time

import httpx
import pytest
import standardwebhooks

from support import tokens
from support.json_client import Socket

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "clients" / "python"))
from tavern_client import Backend, TavernError, sign_token, verify_webhook  # noqa: E402

SECRET = "whsec_" + "QUJD" * 10


def webhook(body='{"n":1}'):
    """A webhook, signed by the reference library."""
    now = int(time.time())
    import datetime
    at = datetime.datetime.fromtimestamp(now, tz=datetime.timezone.utc)
    signature = standardwebhooks.Webhook(SECRET).sign("msg_1", at, body)
    return {"webhook-id": "msg_1", "webhook-timestamp": str(now), "webhook-signature": signature}, body


def pulls(server, name="audit", topic=None):
    """A subscription that pulls the events of a topic."""
    wish = {"topics": [topic or name], "pull": True}
    headers = {"authorization": f"Bearer {server.key}"}
    httpx.put(f"{server.url}/v1/subscriptions/{name}", json=wish, headers=headers, timeout=10, trust_env=False).raise_for_status()


def test_python_publishes_and_disconnects(serve, user):
    backend = Backend(serve.url, serve.key)
    with Socket(serve, token=sign_token(tokens.SECRET, user, allow=tokens.EVERYTHING)) as socket:
        assert socket.hello["user"] == user
        socket.ok("subscribe", channel="game#py")
        assert backend.publish("game#py", 1) == {"receivers": 1}
        assert [result.get("receivers") for result in backend.broadcast(["game#py", "user#x"], 2)] == [1, None]
        assert len(backend.publish_many([("game#py", 3)])) == 1
        socket.ok("join", channel="game#py", state=1)
        assert backend.who("game#py")["users"][0]["user"] == user and backend.who("game#py", limit=1)["count"] == 1
        backend.send_to_inbox(user, {"gift": 1})
        while (event := socket.event())["event"] != "inbox":
            pass
        assert event["data"] == {"gift": 1}
        assert [session["client"] for session in backend.sessions(user)] == [socket.hello["client"]]
        assert backend.disconnect(user)["sessions"] == 1
        assert socket.closing()[1] == 4006
    assert backend.stats()["cluster"]["nodes"] == 1
    backend.ban(user, "spam")
    backend.unban(user)
    with pytest.raises(TavernError) as refused:
        backend.unban(user)
    assert refused.value.code == "not_found"


def test_python_pulls_events(serve):
    pulls(serve, "books")
    backend = Backend(serve.url, serve.key)
    backend.post_events("books", [{"type": "a", "data": 1}, {"type": "b"}])
    events = backend.events("books")
    assert [next(events)["type"] for _ in range(2)] == ["a", "b"]
    backend.post_events("books", [{"type": "c"}])
    assert next(events)["type"] == "c", "the events before it are acknowledged"


def test_python_verifies_webhooks():
    headers, body = webhook()
    assert verify_webhook(SECRET, headers, body.encode())
    assert not verify_webhook(SECRET, headers, b"{}")
    assert not verify_webhook(SECRET, headers | {"webhook-id": "msg_2"}, body.encode())
    assert not verify_webhook(SECRET, headers, body.encode(), now_s=time.time() + 400)
    assert not verify_webhook(SECRET, {}, body.encode())


def test_node_publishes_disconnects_signs_and_verifies(serve, user):
    headers, body = webhook()
    with Socket(serve, token=tokens.token(user)) as socket:
        socket.ok("subscribe", channel="game#js")
        socket.ok("join", channel="game#js", state=1)
        given = {"url": serve.url, "key": serve.key, "secret": tokens.SECRET, "user": user, "webhook": {"secret": SECRET, "headers": headers, "body": body}}
        pulls(serve, topic="orders")
        done = subprocess.run(["node", HERE / "node" / "backend.mjs"], input=json.dumps(given), capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        saw = json.loads(done.stdout)
        assert saw["pulled"] == [["a", 1], ["b", None], ["c", None]]
        assert [result.get("receivers") for result in saw["results"]] == [1, None] and saw["receivers"] == 1
        assert (saw["disconnected"]["sessions"], saw["refused"], saw["verified"]) == (1, "not_found", [True] + [False] * 5)
        assert saw["present"] == [user] and saw["sessions"] == 1 and saw["topics"] == ["none"]
    with Socket(serve, token=saw["token"]) as socket:
        assert socket.hello["user"] == "node"
