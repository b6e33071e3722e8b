"""A raw HTTP/1.1 connection."""
import json
import socket as sockets


class Connection:
    """A connection that stays open."""

    def __init__(self, server, receive_buffer=None):
        self.socket = sockets.socket()
        self.socket.settimeout(10)
        if receive_buffer:
            self.socket.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", server.port))
        self.pending = b""

    def send(self, data):
        self.socket.sendall(data)

    def poll(self, body=None, headers="", path="/v1/poll?user=ann"):
        self.send(request("POST", path, body, headers))
        return self.answer()

    def command(self, body, path="/v1/command?user=ann"):
        self.send(request("POST", path, body))
        return self.answer()

    def more(self):
        data = self.socket.recv(65536)
        self.pending += data
        return bool(data)

    def answer(self):
        """The next response: status, headers, JSON. None: the server has closed the connection."""
        while b"\r\n\r\n" not in self.pending:
            if not self.more():
                assert not self.pending, f"half a response: {self.pending}"
                return None
        head, _, rest = self.pending.partition(b"\r\n\r\n")
        line, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        length = int(headers["content-length"])
        while len(rest) < length:
            self.more()
            rest = self.pending.partition(b"\r\n\r\n")[2]
        self.pending = rest[length:]
        text = rest[:length]
        is_json = headers.get("content-type") == "application/json"
        return int(line.split()[1]), headers, json.loads(text) if is_json else text.decode()

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.socket.close()


def request(method, path, body=None, headers=""):
    text = json.dumps(body).encode() if body is not None else b""
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(text)}\r\n{headers}\r\n".encode() + text
