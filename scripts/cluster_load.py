"""Load for `scripts/cluster`: WebSocket users who join rooms, publish, and reconnect when their server stops.

Contains a minimal WebSocket client, so that nothing has to be installed. Not for benchmarks: use `tavern-bench load`.
"""
import base64
import json
import os
import random
import socket
import struct
import threading
import time

ROOMS = ["game#1", "game#2", "game#3"]
EACH = 6


class WebSocket:
    """One connection with text frames. A slow read raises TimeoutError."""

    def __init__(self, port, user, query=""):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=2)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /v1/connect?user={user}{query} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.more()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if b" 101 " not in head:
            raise ConnectionError(head.split(b"\r\n")[0].decode())

    def more(self):
        part = self.socket.recv(65536)
        if not part:
            raise ConnectionError("closed")
        self.buffer += part

    def take(self, count):
        while len(self.buffer) < count:
            self.more()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def send(self, value, opcode=1):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        mask = os.urandom(4)
        length = bytes([0x80 | len(body)]) if len(body) < 126 else b"\xfe" + struct.pack(">H", len(body))
        self.socket.sendall(bytes([0x80 | opcode]) + length + mask + bytes(b ^ mask[n % 4] for n, b in enumerate(body)))

    def read(self):
        while True:
            opcode, length = self.take(2)
            length = struct.unpack(">H", self.take(2))[0] if length == 126 else struct.unpack(">Q", self.take(8))[0] if length == 127 else length
            body = self.take(length)
            if opcode & 15 == 1:
                return json.loads(body)
            if opcode & 15 == 9:
                self.send(body, opcode=10)
            if opcode & 15 == 8:
                raise ConnectionError("closed")


class User(threading.Thread):
    """Publishes in its room twice a second. Connects to another node when its own does not answer."""

    def __init__(self, crowd, number):
        super().__init__(daemon=True)
        self.crowd, self.number = crowd, number
        self.name_, self.room = f"user{number}", ROOMS[number // len(crowd.nodes) % len(ROOMS)]
        self.at, self.session, self.seq, self.online = number, None, 0, False

    def run(self):
        while not self.crowd.over:
            try:
                self.connect_and_publish()
            except (OSError, ValueError):
                self.online = False
                self.at += 1
                time.sleep(random.uniform(0.05, 0.3))

    def connect_and_publish(self):
        node = self.crowd.nodes[self.at % len(self.crowd.nodes)]
        resume = f"&session={self.session}&seq={self.seq}" if self.session else ""
        line = WebSocket(node.port, self.name_, resume)
        hello = line.read()["ok"]
        if hello["resumed"]:
            self.crowd.resumed += 1
        else:
            self.crowd.renewed += 1 if self.session else 0
            self.seq = 0
            line.send({"id": 1, "op": "subscribe", "channel": self.room, "presence": True})
            line.send({"id": 2, "op": "join", "channel": self.room})
        self.session, self.online, n = hello["session"], True, 2
        line.socket.settimeout(0.5)
        due = time.monotonic()
        while not self.crowd.over:
            if time.monotonic() >= due:
                n, due = n + 1, time.monotonic() + 0.5
                line.send({"id": n, "op": "publish", "channel": self.room, "data": {"n": n}})
                line.send({"op": "ack", "seq": self.seq})
            try:
                frame = line.read()
            except TimeoutError:
                if time.monotonic() > due + 3:
                    raise
                continue
            self.on_frame(line, frame)

    def on_frame(self, line, frame):
        self.seq = frame.get("seq", self.seq)
        self.crowd.gaps += frame.get("event") == "gap"
        if "error" in frame:
            self.crowd.refused += 1
            if frame.get("id") in (1, 2):
                time.sleep(frame["error"].get("retry_after_ms", 250) / 1000)
                op = {"op": "join"} if frame["id"] == 2 else {"op": "subscribe", "presence": True}
                line.send({"id": frame["id"], "channel": self.room} | op)
        if frame.get("event") == "closing":
            time.sleep(min(frame["reconnect_after_ms"], 1000) / 1000)
            raise ConnectionError("closing")


class Crowd:
    def __init__(self, nodes):
        self.nodes, self.over, self.size = nodes, False, EACH * len(nodes)
        self.resumed = self.renewed = self.gaps = self.refused = 0
        self.last = {}
        self.users = [User(self, number) for number in range(self.size)]

    def __enter__(self):
        for user in self.users:
            user.start()
        return self

    def __exit__(self, *failure):
        self.over = True
        for user in self.users:
            user.join(5)

    def online(self):
        return sum(user.online for user in self.users)

    def changes(self):
        """Changes of the clients since the last call, as text."""
        now = {"sessions resumed": self.resumed, "new sessions": self.renewed, "gaps": self.gaps}
        changes = [f"clients: {count - self.last.get(what, 0)} {what}" for what, count in now.items() if count > self.last.get(what, 0)]
        self.last = now
        return changes
