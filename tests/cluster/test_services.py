"""Status messages for other services on the bus: `followersof.<user>` on NATS and Redis, each change once."""
import re
import socket
import time

import pytest
import redis

from cluster.combination import Combination, Engines
from support.json_client import Socket
from support.process import until
from support.protobuf import fields

CONFIG = """
[presence]
disconnect_coalesce_ms = 300
[sessions]
resume_ms = 100
[kinds.user]
grace_ms = 1500
[kinds.activegame]
grace_ms = 200
"""
TURNS = ["none", "disconnected", "started_game", "ended_game", "solving_puzzles", "annotating_game", "in_game_channel"]


class NatsListener:
    """A minimal NATS client."""

    def __init__(self, port, prefix):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.socket.sendall(f'CONNECT {{"verbose":false}}\r\nSUB {prefix}.followersof.> 1\r\nPING\r\n'.encode())
        self.bytes = b""
        while b"PONG\r\n" not in self.bytes:
            self.bytes += self.socket.recv(4096)
        self.bytes = b""

    def get(self, seconds):
        self.socket.settimeout(seconds)
        while not (head := re.match(rb"(?:PING\r\n)*MSG (\S+) 1 (\d+)\r\n", self.bytes)) or len(self.bytes) < head.end() + int(head[2]) + 2:
            try:
                self.bytes += self.socket.recv(4096)
            except TimeoutError:
                return None
        end = head.end() + int(head[2])
        subject, body, self.bytes = head[1].decode(), self.bytes[head.end():end], self.bytes[end + 2:]
        return subject, body


class RedisListener:
    def __init__(self, port, prefix):
        self.received = redis.Redis(port=port).pubsub(ignore_subscribe_messages=True)
        self.received.psubscribe(f"{prefix}.followersof.*")
        self.received.get_message(timeout=5)

    def get(self, seconds):
        end = time.time() + seconds
        while (left := end - time.time()) > 0:
            if message := self.received.get_message(timeout=left):
                return message["channel"].decode(), message["data"]
        return None


@pytest.fixture(params=["nats", "redis"])
def world(request):
    with Engines() as engines, Combination(f"sqlite+{request.param}", engines).cluster(2, CONFIG) as nodes:
        prefix = re.search('prefix = "(.*)"', nodes[0].config.read_text())[1]
        server = engines.server(request.param)
        if request.param == "nats":
            yield nodes, NatsListener(server.port, prefix), prefix
        else:
            yield nodes, RedisListener(server.resp_port, prefix), prefix


def next_events(listener, prefix, user, seconds=5):
    """The next message about this user."""
    end = time.time() + seconds
    while (left := end - time.time()) > 0:
        if (message := listener.get(left)) and message[0] == f"{prefix}.followersof.{user}":
            activity = fields(message[1])
            status = fields(activity[4][0])
            assert activity[2] == [user.encode()]
            return {
                "turn": TURNS[activity.get(1, [0])[0]],
                "meta": activity.get(3, [b""])[0].decode(),
                "online": status.get(1, [0])[0] == 1,
                "activities": [fields(one)[1][0].decode() for one in status.get(3, [])],
                "channels": [name.decode() for name in status.get(4, [])],
                "last_seen": status.get(5, [None])[0],
            }
    raise AssertionError(f"nothing about {user}")


def test_a_service_receives_status_changes(world):
    (a, b), listener, prefix = world
    ann = Socket(a, user="ann")
    came = next_events(listener, prefix, "ann")
    assert came["online"] and came["channels"] == []
    ann.ok("join", channel="activegame#A")
    playing = next_events(listener, prefix, "ann")
    assert (playing["turn"], playing["meta"]) == ("started_game", "activegame#A")
    assert playing["activities"] == ["playing"] and playing["channels"] == ["activegame#A"]
    # A second session on another server: the server of the change sends the message, once.
    with Socket(b, user="ann") as other:
        other.ok("join", channel="game#B")
        until(lambda: next_events(listener, prefix, "ann")["channels"] == ["activegame#A", "game#B"], "both channels in the message")
        other.ok("leave", channel="game#B")
        until(lambda: next_events(listener, prefix, "ann")["channels"] == ["activegame#A"], "one channel to be left")
    ann.ok("leave", channel="activegame#A")
    until(lambda: next_events(listener, prefix, "ann")["turn"] == "ended_game", "the end of the game")
    ann.close()
    last = next_events(listener, prefix, "ann")
    while last["turn"] != "disconnected":
        last = next_events(listener, prefix, "ann")
    assert (last["turn"], last["online"]) == ("disconnected", False) and last["last_seen"]
    assert listener.get(1) is None, "no message after it"


def test_a_page_switch_sends_no_offline_message(world):
    (a, _), listener, prefix = world
    Socket(a, user="bob").close()
    with Socket(a, user="bob"):
        seen = []
        while (message := listener.get(1)) is not None:
            seen.append(fields(fields(message[1])[4][0]).get(1, [0])[0])
        assert seen and all(seen), f"an online user was reported offline: {seen}"


def test_a_hidden_user_is_offline_for_services(world):
    (a, _), listener, prefix = world
    with Socket(a, user="eve") as eve:
        assert next_events(listener, prefix, "eve")["online"]
        eve.ok("visibility", value="nobody")
        hidden = next_events(listener, prefix, "eve")
        assert (hidden["turn"], hidden["online"], hidden["last_seen"]) == ("disconnected", False, None)
        eve.ok("join", channel="game#C")
        assert next_events(listener, prefix, "eve")["channels"] == []


def test_clients_cannot_publish_on_service_channels(world):
    (a, _), _, _ = world
    with Socket(a, user="mallory") as mallory:
        refused = mallory.call("publish", channel="followersof#ann", data="lies")
        assert refused["error"]["code"] == "not_allowed"
