"""The authorize hook: the app decides what tokens leave open, on every transport; a failing app denies and delays no other client."""
import json
import signal
import threading
import time

import pytest

from support import tokens
from support.app import App
from support.json_client import Poller, Socket
from support.resp import CLOSED, ErrorReply, RespConnection, pack
from support.tavern import Tavern

pytestmark = pytest.mark.alone
CACHE_MS = 1500


@pytest.fixture(scope="module")
def app():
    with App() as app:
        yield app


@pytest.fixture(scope="module")
def server(app):
    """One shard, so that clients waiting for the app share it with all others."""
    config = f'threads = 1\n[authorize]\nurl = "{app.url}"\ncache_ms = {CACHE_MS}\n[kinds.default]\nallow = ["subscribe", "publish"]\n'
    with Tavern.serve(config) as server:
        yield server


def token_without_rights(user, **rights):
    """A token without rights, or only with the given ones."""
    return tokens.token(user, allow=rights.get("allow", {}))


class OverWebSocket:
    def __init__(self, server, token):
        self.client = Socket(server, token=token)

    def subscribe(self, channel):
        return self.client.call("subscribe", channel=channel)

    def publish(self, channel, data):
        return self.client.call("publish", channel=channel, data=data)

    def message(self):
        event = self.client.event()
        return event["channel"], event["data"]

    def close(self):
        self.client.close()


class OverCommand(OverWebSocket):
    def __init__(self, server, token):
        self.client = Poller(server, token=token)
        self.client.ok("hello")

    def subscribe(self, channel):
        return self.client.command("subscribe", channel=channel)

    def publish(self, channel, data):
        return self.client.command("publish", channel=channel, data=data)

    def message(self):
        (event,) = self.client.take()
        return event["channel"], event["data"]


class OverRedis:
    """Two RESP2 connections, one to subscribe and one to publish. Replies are translated to the JSON protocol."""

    def __init__(self, server, token):
        self.subscriber, self.publisher = (RespConnection(server.resp_port) for _ in range(2))
        for connection in (self.subscriber, self.publisher):
            assert connection.call("AUTH", token) == "OK"

    @staticmethod
    def refused(reply):
        return {"error": {"code": "not_allowed" if reply.startswith("NOPERM") else str(reply)}}

    def subscribe(self, channel):
        reply = self.subscriber.call("SUBSCRIBE", channel)
        if isinstance(reply, ErrorReply):
            return self.refused(reply)
        named = reply[1].decode()
        return {"ok": {} if named == channel else {"channel": named}}

    def publish(self, channel, data):
        reply = self.publisher.call("PUBLISH", channel, json.dumps(data))
        return self.refused(reply) if isinstance(reply, ErrorReply) else {"ok": {"receivers": reply}}

    def message(self):
        kind, channel, data = self.subscriber.read()
        assert kind == b"message"
        return channel.decode(), json.loads(data)

    def close(self):
        self.subscriber.close()
        self.publisher.close()


@pytest.fixture(params=[OverWebSocket, OverCommand, OverRedis])
def client(request, server, user):
    client = request.param(server, token_without_rights(user))
    client.user = user
    yield client
    client.close()


def test_the_app_can_allow(client, app, channel):
    app.set_answer({"allow": True}, channel)
    assert "ok" in client.subscribe(channel)
    assert client.publish(channel, "hi")["ok"]["receivers"] == 1
    assert client.message() == (channel, "hi")
    asked = app.requests_for(channel)
    assert {"user": client.user, "channel": channel, "verb": "subscribe"} in asked
    assert {"user": client.user, "channel": channel, "verb": "publish"} in asked


def test_the_app_can_deny(client, app, channel):
    app.set_answer({"allow": False}, channel)
    assert client.subscribe(channel)["error"]["code"] == "not_allowed"
    assert client.publish(channel, "hi")["error"]["code"] == "not_allowed"
    assert len(app.requests_for(channel)) == 2, "the app is asked even though the defaults of the kind allow it"


def test_the_app_can_redirect_to_another_channel(client, server, app, channel):
    other = channel.replace("room", "tv")
    app.set_answer({"allow": True, "channel": other}, channel)
    reply = client.subscribe(channel)
    assert reply["ok"] == {"channel": other}
    with Socket(server, token=tokens.token("everything")) as everything:
        assert everything.ok("publish", channel=channel, data="not for it")["receivers"] == 0
        assert everything.ok("publish", channel=other, data="for it")["receivers"] == 1
        assert client.message() == (other, "for it")
        everything.ok("subscribe", channel=other)
        everything.ok("subscribe", channel=channel)
        answer = client.publish(channel, "from it")["ok"]
        assert answer["receivers"] == 2
        assert answer.get("channel", other) == other
        event = everything.event()
        assert (event["channel"], event["data"]) == (other, "from it")
        assert everything.events_so_far() == [], "nothing is published to the requested channel"


@pytest.mark.parametrize("elsewhere", ["user#ann", "party#1", "tavern#x", "", "\u0000", "x" * 300])
def test_the_app_cannot_redirect_to_a_reserved_or_invalid_channel(client, app, channel, elsewhere):
    app.set_answer({"allow": True, "channel": elsewhere}, channel)
    assert "error" in client.subscribe(channel)
    assert "error" in client.publish(channel, "x")


@pytest.mark.parametrize(
    "answer",
    [500, 404, 302, 204, b"", b"yes", b"[]", b"null", b"{", b'{"allow":1}', b'{"allow":"true"}', b'{"channel":"tv#1"}',
     b'{"allow":true,"channel":7}', b'{"allow":true,"x":"' + b"x" * 100_000 + b'"}'],
    ids=lambda answer: str(answer)[:24],
)
def test_an_invalid_answer_denies(server, app, channel, user, answer):
    app.set_answer(answer, channel)
    for transport in (OverWebSocket, OverRedis):
        client = transport(server, token_without_rights(f"{user}-{transport.__name__}"))
        assert client.subscribe(channel)["error"]["code"] == "not_allowed"
        client.close()
    assert len(app.requests_for(channel)) == 2


def test_an_answer_is_cached_for_its_ttl_and_its_own_request_only(server, app, channel, user):
    app.set_answer({"allow": True}, channel)
    with Socket(server, token=token_without_rights(user)) as socket, Socket(server, token=token_without_rights(f"{user}-2")) as other:
        began = time.monotonic()
        for _ in range(5):
            socket.ok("subscribe", channel=channel)
            socket.ok("unsubscribe", channel=channel)
        redis = RespConnection(server.resp_port)
        redis.call("AUTH", token_without_rights(user))
        assert redis.call("SUBSCRIBE", channel)[0] == b"subscribe"
        redis.close()
        in_time = time.monotonic() - began < CACHE_MS / 1000
        assert len(app.requests_for(channel)) == 1 or not in_time, "one request for all transports of the user"
        socket.ok("publish", channel=channel, data=1)
        assert app.requests_for(channel)[-1]["verb"] == "publish", "another verb is another request"
        other.ok("subscribe", channel=channel)
        assert app.requests_for(channel)[-1]["user"] == f"{user}-2", "another user is another request"
        count = len(app.requests_for(channel))
        app.set_answer({"allow": False}, channel)
        end = time.monotonic() + CACHE_MS / 1000 + 2
        while "ok" in socket.call("subscribe", channel=channel):
            assert time.monotonic() < end, "the cached answer outlived its TTL"
            time.sleep(0.02)
        assert time.monotonic() - began >= CACHE_MS / 1000 - 0.1, "the cached answer expired too early"
        assert len(app.requests_for(channel)) == count + 1


def test_concurrent_equal_requests_are_sent_once(server, app, channel, user):
    gate = threading.Event()
    app.set_answer({"allow": True}, channel, gate)
    sockets = [Socket(server, token=token_without_rights(user)) for _ in range(10)]
    for socket in sockets:
        socket.send(json.dumps({"id": 1, "op": "subscribe", "channel": channel}))
    app.wait_for(channel)
    gate.set()
    assert all("ok" in socket.frame() for socket in sockets)
    assert len(app.requests_for(channel)) == 1
    for socket in sockets:
        socket.close()


def test_rights_in_the_token_are_not_asked_for(server, app, channel, user):
    app.set_answer({"allow": False}, channel)
    with Socket(server, token=token_without_rights(user, allow={channel: ["subscribe"]})) as socket:
        socket.ok("subscribe", channel=channel)
        assert app.requests_for(channel) == []
        assert socket.call("subscribe", pattern="room#*")["error"]["code"] == "not_allowed"
        assert app.requests_for("room#*") == [], "patterns are not sent to the app"


def test_commands_after_a_waiting_one_run_in_order(server, app, channel, user):
    gate = threading.Event()
    app.set_answer({"allow": True}, channel, gate)
    with Socket(server, token=token_without_rights(user, allow={channel: ["publish"]})) as socket:
        frames = [
            {"id": 1, "op": "subscribe", "channel": channel},
            {"id": 2, "op": "publish", "channel": channel, "data": "received"},
            {"id": 3, "op": "unsubscribe", "channel": channel},
            {"id": 4, "op": "publish", "channel": channel, "data": "unheard"},
            {"id": 5, "op": "ping"},
        ]
        socket.send("\n".join(map(json.dumps, frames[:2])))
        for frame in frames[2:]:
            socket.send(json.dumps(frame))
        app.wait_for(channel)
        with pytest.raises(TimeoutError):
            socket.frame(timeout=0.2)
        gate.set()
        came = [socket.frame() for _ in range(6)]
        # The event comes before the later reply; the message published after the unsubscribe is not delivered.
        assert [frame.get("id", frame.get("data")) for frame in came if "id" in frame] == [1, 2, 3, 4, 5]
        assert [frame["data"] for frame in came if "event" in frame] == ["received"]
        receivers = {frame["id"]: frame["ok"].get("receivers") for frame in came if "id" in frame}
        assert (receivers[2], receivers[4]) == (1, 0)


def test_redis_commands_after_a_waiting_one_run_in_order(server, app, channel, user):
    gate = threading.Event()
    app.set_answer({"allow": True}, channel, gate)
    connection = RespConnection(server.resp_port)
    connection.call("AUTH", token_without_rights(user))
    connection.send(pack("PUBLISH", channel, "a") + pack("ECHO", "b") + pack("SUBSCRIBE", channel) + pack("PING") + b"*2\r\n$4\r\nPI")
    app.wait_for(channel)
    connection.send(b"NG\r\n$1\r\nz\r\n")
    with pytest.raises((TimeoutError, OSError)):
        connection.frame(timeout=0.2)
    gate.set()
    assert [connection.read() for _ in range(5)] == [
        0, b"b", [b"subscribe", channel.encode(), 1], [b"pong", b""], [b"pong", b"z"],
    ]
    connection.close()


def test_a_client_that_disconnects_while_waiting_affects_no_other(server, app, channel, user):
    gate = threading.Event()
    app.set_answer({"allow": True}, channel, gate)
    for number in range(20):
        socket = Socket(server, token=token_without_rights(f"{user}-{number}"))
        socket.send(json.dumps({"id": 1, "op": "subscribe", "channel": channel}))
        redis = RespConnection(server.resp_port)
        redis.send(pack("AUTH", token_without_rights(f"{user}-r{number}")) + pack("SUBSCRIBE", channel))
        app.wait_for(channel, 2 * number + 2)
        socket.drop()
        redis.close()
    # New connections reuse their slots before the answers arrive.
    others = [Socket(server, token=tokens.token(f"{user}-other{number}")) for number in range(20)]
    gate.set()
    for other in others:
        assert other.events_so_far() == []
        other.close()


def test_a_hanging_app_denies_after_three_seconds_and_delays_no_other_client(server, app, channel, user):
    app.set_answer(app.never, channel)
    quick = f"{channel}-quick"
    app.set_answer({"allow": True}, quick)
    waiting = [transport(server, token_without_rights(f"{user}-{transport.__name__}")) for transport in (OverWebSocket, OverCommand, OverRedis)]
    outcomes = {}

    def ask(client):
        began = time.monotonic()
        outcomes[type(client).__name__] = (client.subscribe(channel), time.monotonic() - began)

    threads = [threading.Thread(target=ask, args=(client,), daemon=True) for client in waiting]
    for thread in threads:
        thread.start()
    app.wait_for(channel, 3)
    slowest, rounds = 0.0, 0
    with Socket(server, token=token_without_rights(f"{user}-4", allow={channel: ["subscribe", "publish"]})) as other:
        redis = RespConnection(server.resp_port)
        redis.call("AUTH", token_without_rights(f"{user}-5"))
        while any(thread.is_alive() for thread in threads):
            began = time.monotonic()
            other.ok("publish", channel=channel, data=rounds)
            assert redis.call("PUBLISH", quick, "x") == 0
            slowest, rounds = max(slowest, time.monotonic() - began), rounds + 1
            time.sleep(0.03)
        redis.close()
    assert rounds >= 20 and slowest < 0.5, f"{rounds} rounds, the slowest took {slowest:.3f} s"
    for name, (reply, took) in outcomes.items():
        assert reply["error"]["code"] == "not_allowed", name
        assert 2.5 < took < 4.5, f"{name} waited {took:.2f} s"
    for client in waiting:
        client.close()


def test_many_requests_to_a_hanging_app_all_end_after_three_seconds(server, app, channel, user):
    """More than the server sends concurrently: time in the queue counts towards the three seconds."""
    app.set_answer(app.never, channel)
    connections = [RespConnection(server.resp_port, timeout=15) for _ in range(150)]
    for number, connection in enumerate(connections):
        assert connection.call("AUTH", token_without_rights(f"{user}-{number}")) == "OK"
    began = time.monotonic()
    for connection in connections:
        connection.send(pack("SUBSCRIBE", channel))
    replies = [connection.read() for connection in connections]
    took = time.monotonic() - began
    assert all(isinstance(reply, ErrorReply) and reply.startswith("NOPERM") for reply in replies)
    assert took < 5.0, f"the last refusal came after {took:.1f} s"
    for connection in connections:
        connection.close()


def test_a_stop_does_not_wait_for_the_app(app, channel):
    app.set_answer(app.never, channel)
    with Tavern.serve(f'[authorize]\nurl = "{app.url}"\n') as server:
        socket, redis = Socket(server, token=token_without_rights("ann")), RespConnection(server.resp_port)
        redis.call("AUTH", token_without_rights("bob"))
        poller = Poller(server, token=token_without_rights("cid"))
        poller.ok("hello")
        answers = []
        asker = threading.Thread(target=lambda: answers.append(poller.command_response("subscribe", channel=channel)), daemon=True)
        asker.start()
        socket.send(json.dumps({"id": 1, "op": "subscribe", "channel": channel}))
        redis.send(pack("SUBSCRIBE", channel))
        app.wait_for(channel, 3)
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        frames, code = socket.closing()
        assert (frames[-1]["event"], code) == ("closing", 4502)
        assert redis.frame() == CLOSED
        asker.join(5)
        assert answers[0].status_code == 503
        assert server.process.wait(8) == 0
        assert time.monotonic() - began < 2.5
        for client in (socket, redis, poller):
            client.close()


def test_an_unreachable_app_denies():
    with App() as gone:
        url = gone.url
    with Tavern.serve(f'[authorize]\nurl = "{url}"\n') as server, Socket(server, token=token_without_rights("ann")) as socket:
        began = time.monotonic()
        assert socket.call("subscribe", channel="game#1")["error"]["code"] == "not_allowed"
        assert time.monotonic() - began < 4
