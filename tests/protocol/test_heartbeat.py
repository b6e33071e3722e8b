"""Heartbeats: a WebSocket that does not answer pings is closed and can resume; a Redis client that disconnects while waiting is removed."""
import base64
import json
import os
import socket
import time

from support.resp import RespConnection
from support.tavern import Tavern

PING, CLOSE, TEXT = 9, 8, 1


class SilentSocket:
    """A WebSocket that never sends anything, not even a pong."""

    def __init__(self, port, query):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /v1/connect?{query} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.buffer += self.socket.recv(4096)
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        assert b" 101 " in head

    def take(self, count):
        while len(self.buffer) < count:
            more = self.socket.recv(4096)
            assert more, "closed without a close frame"
            self.buffer += more
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def frame(self):
        first, length = self.take(2)
        if length == 126:
            length = int.from_bytes(self.take(2), "big")
        return first & 15, self.take(length)


def test_a_websocket_without_pongs_is_closed_and_can_resume():
    with Tavern.dev("[sessions]\nheartbeat_ms = 300\n") as server:
        port = server.port
        mute = SilentSocket(port, "user=ann")
        opcode, hello = mute.frame()
        session = json.loads(hello)["ok"]["session"]
        assert opcode == TEXT
        assert mute.frame() == (PING, b"")
        opcode, reason = mute.frame()
        assert (opcode, int.from_bytes(reason[:2], "big")) == (CLOSE, 4501)
        again = SilentSocket(port, f"user=ann&session={session}&seq=0")
        assert json.loads(again.frame()[1])["ok"]["resumed"] is True


def test_a_redis_client_that_disconnects_while_waiting_is_not_counted():
    with Tavern.dev() as server:
        waiting = RespConnection(server.resp_port)
        waiting.call("SUBSCRIBE", "room#w")
        waiting.call("TAVERN.MODE", "poll")
        waiting.send(b"TAVERN.WAIT 0\r\n")
        other = RespConnection(server.resp_port)
        assert other.call("PUBSUB", "NUMSUB", "room#w")[1] == 1
        waiting.close()
        until = time.monotonic() + 3
        while other.call("PUBSUB", "NUMSUB", "room#w")[1] != 0:
            assert time.monotonic() < until, "it is still counted"
            time.sleep(0.02)
