"""A Pusher client without a library: it sends any frame, reads when the test says so, and answers pings only while it `lives`."""
import base64
import hashlib
import hmac
import json
import os
import socket
import struct

WAIT = 20.0


class RawClient:
    def __init__(self, server, app, query="protocol=7", key=None, receive_bytes=None, lives=False, headers=()):
        self.app, self.data, self.lives = app, b"", lives
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(WAIT)
        self.socket.connect(("127.0.0.1", server.port))
        if server.trust:
            self.socket = server.trust.wrap_socket(self.socket, server_hostname="127.0.0.1")
        nonce = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET /app/{key or app.key}?{query} HTTP/1.1", f"host: 127.0.0.1:{server.port}", "connection: upgrade", "upgrade: websocket",
            "sec-websocket-version: 13", f"sec-websocket-key: {nonce}", *headers, "", "",
        ]
        self.socket.sendall("\r\n".join(lines).encode())
        while b"\r\n\r\n" not in self.data:
            self.data += self.socket.recv(4096)
        head, self.data = self.data.split(b"\r\n\r\n", 1)
        assert head.startswith(b"HTTP/1.1 101"), head

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.socket.close()

    def established(self):
        """The id of the socket."""
        return json.loads(self.waits("pusher:connection_established")["data"])["socket_id"]

    def send(self, event, data=None, **more):
        self.send_text(json.dumps({"event": event, "data": data or {}} | more))

    def send_text(self, text, opcode=1):
        payload = text.encode() if isinstance(text, str) else text
        length = len(payload)
        head = bytes([0x80 | opcode]) + (bytes([0x80 | length]) if length < 126 else b"\xfe" + struct.pack("!H", length) if length < 65536 else b"\xff" + struct.pack("!Q", length))
        # The mask is zero, so the payload stays as it is.
        self.socket.sendall(head + bytes(4) + payload)

    def subscribe(self, channel, **more):
        self.send("pusher:subscribe", {"channel": channel} | more)

    def signature(self, text, secret=None):
        return f"{self.app.key}:{hmac.new((secret or self.app.secret).encode(), text.encode(), hashlib.sha256).hexdigest()}"

    def _bytes(self, count):
        while len(self.data) < count:
            piece = self.socket.recv(65536)
            if not piece:
                raise EOFError
            self.data += piece
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def _frame(self):
        """Opcode and payload of the next frame."""
        first, length = self._bytes(2)
        if length == 126:
            length, = struct.unpack("!H", self._bytes(2))
        elif length == 127:
            length, = struct.unpack("!Q", self._bytes(8))
        return first & 15, self._bytes(length)

    def next(self):
        """The next event."""
        while True:
            opcode, payload = self._frame()
            if opcode == 1:
                return json.loads(payload)
            if opcode == 9 and self.lives:
                self.send_text(payload, 10)
            assert opcode in (9, 10), f"the server has closed: {payload}"

    def answers_ping(self):
        """Answers the next ping."""
        while (frame := self._frame())[0] != 9:
            assert frame[0] == 1, frame
        self.send_text(frame[1], 10)

    def waits(self, event):
        while (seen := self.next())["event"] != event:
            pass
        return seen

    def end(self):
        """How the connection ends: all events before, and the code of the close frame; None without one."""
        events = []
        try:
            while True:
                opcode, payload = self._frame()
                if opcode == 1:
                    events.append(json.loads(payload))
                elif opcode == 8:
                    return events, struct.unpack("!H", payload[:2])[0]
        except (EOFError, ConnectionResetError):
            return events, None
