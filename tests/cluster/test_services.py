"""Other services hear on the bus what users do, once and whole: `followersof.<user>` on NATS and on Redis."""
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
grace_ms = 200
[kinds.activegame]
grace_ms = 200
"""
TURNS = ["none", "disconnected", "started_game", "ended_game", "solving_puzzles", "annotating_game", "in_game_channel"]


class NatsListener:
    """A client of NATS in a dozen lines."""

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
        self.heard = redis.Redis(port=port).pubsub(ignore_subscribe_messages=True)
        self.heard.psubscribe(f"{prefix}.followersof.*")
        self.heard.get_message(timeout=5)

    def get(self, seconds):
        end = time.time() + seconds
        while (left := end - time.time()) > 0:
            if message := self.heard.get_message(timeout=left):
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


def told(listener, prefix, user, seconds=5):
    """What is said next about this user."""
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


def test_a_service_hears_what_a_user_does(world):
    (a, b), listener, prefix = world
    ann = Socket(a, user="ann")
    came = told(listener, prefix, "ann")
    assert came["online"] and came["channels"] == []
    ann.ok("join", channel="activegame#A")
    playing = told(listener, prefix, "ann")
    assert (playing["turn"], playing["meta"]) == ("started_game", "activegame#A")
    assert playing["activities"] == ["playing"] and playing["channels"] == ["activegame#A"]
    # A second session at another server: whoever changes something says so, once.
    with Socket(b, user="ann") as other:
        other.ok("join", channel="game#B")
        until(lambda: told(listener, prefix, "ann")["channels"] == ["activegame#A", "game#B"], "both places are told")
        other.ok("leave", channel="game#B")
        until(lambda: told(listener, prefix, "ann")["channels"] == ["activegame#A"], "one of them is left")
    ann.ok("leave", channel="activegame#A")
    until(lambda: told(listener, prefix, "ann")["turn"] == "ended_game", "the end of the game is told")
    ann.close()
    last = told(listener, prefix, "ann")
    while last["turn"] != "disconnected":
        last = told(listener, prefix, "ann")
    assert (last["turn"], last["online"]) == ("disconnected", False) and last["last_seen"]
    assert listener.get(1) is None, "and nothing after it"


def test_a_change_of_pages_is_no_disconnect(world):
    (a, _), listener, prefix = world
    Socket(a, user="bob").close()
    with Socket(a, user="bob"):
        seen = []
        while (message := listener.get(1)) is not None:
            seen.append(fields(fields(message[1])[4][0]).get(1, [0])[0])
        assert seen and all(seen), f"somebody who is there was called offline: {seen}"


def test_who_hides_is_offline_for_services(world):
    (a, _), listener, prefix = world
    with Socket(a, user="eve") as eve:
        assert told(listener, prefix, "eve")["online"]
        eve.ok("visibility", value="nobody")
        hidden = told(listener, prefix, "eve")
        assert (hidden["turn"], hidden["online"], hidden["last_seen"]) == ("disconnected", False, None)
        eve.ok("join", channel="game#C")
        assert told(listener, prefix, "eve")["channels"] == []


def test_nobody_speaks_there_in_the_servers_name(world):
    (a, _), _, _ = world
    with Socket(a, user="mallory") as mallory:
        refused = mallory.call("publish", channel="followersof#ann", data="lies")
        assert refused["error"]["code"] == "not_allowed"
