"""A raw RESP connection: sends any bytes, keeps every received byte, and splits them into frames.

A frame is its exact bytes; `parse` returns its value.
"""
import socket
import time

CLOSED = b"<closed>"


class Incomplete(Exception):
    """The bytes end inside a frame."""


class ErrorReply(str):
    """The text of an error reply."""


class Push(list):
    """A RESP3 push."""


def pack(*arguments):
    """A command, encoded as clients send it."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        argument = argument if isinstance(argument, bytes) else str(argument).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(argument), argument))
    return b"".join(parts)


def parse(data, at=0):
    """The value at `at` and the offset of its end."""
    line_end = data.find(b"\r\n", at)
    if line_end < 0:
        raise Incomplete
    kind, line, after = data[at : at + 1], data[at + 1 : line_end], line_end + 2
    if line.startswith(b"TTP/1.1 "):
        # To HTTP on this port Tavern answers in HTTP, one line of text, and closes.
        if not data.endswith(b"\n") or b"\r\n\r\n" not in data[at:]:
            raise Incomplete
        return data[at:].decode(), len(data)
    if kind == b"+":
        return line.decode(), after
    if kind in (b"-", b"!"):
        if kind == b"-":
            return ErrorReply(line.decode()), after
        text, after = _bulk(data, int(line), after)
        return ErrorReply(text.decode()), after
    if kind in (b":", b"("):
        return int(line), after
    if kind == b",":
        return float(line), after
    if kind == b"#":
        return line == b"t", after
    if kind == b"_":
        return None, after
    if kind in (b"$", b"="):
        return (None, after) if line == b"-1" else _bulk(data, int(line), after)
    if kind in (b"*", b"~", b">", b"%", b"|"):
        if line == b"-1":
            return None, after
        values = []
        for _ in range(int(line) * (2 if kind in (b"%", b"|") else 1)):
            value, after = parse(data, after)
            values.append(value)
        if kind == b"%":
            return {_key(values[i]): values[i + 1] for i in range(0, len(values), 2)}, after
        return (Push(values) if kind == b">" else values), after
    raise ValueError(f"not a reply: {data[at:at + 40]!r}")


def _key(value):
    return tuple(value) if isinstance(value, list) else value


def _bulk(data, size, at):
    if len(data) < at + size + 2:
        raise Incomplete
    return data[at : at + size], at + size + 2


class RespConnection:
    def __init__(self, port, timeout=5.0, source=None):
        address = (source, 0) if source else None
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout, source_address=address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout = timeout
        self.buffer = b""
        self.closed = False

    def send(self, data):
        try:
            self.socket.settimeout(self.timeout)
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.closed = True

    def call(self, *arguments):
        """One command, one reply."""
        self.send(pack(*arguments))
        return self.read()

    def read(self, timeout=None):
        """The next frame's value."""
        return parse(self.frame(timeout))[0]

    def frame(self, timeout=None):
        """The next frame's bytes; CLOSED at the end of the stream."""
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            frame = self._cut()
            if frame is not None:
                return frame
            if self.closed:
                if self.buffer:
                    raise ConnectionError(f"closed inside a frame: {self.buffer[:80]!r}")
                return CLOSED
            self._fill(max(end - time.monotonic(), 0))

    def frames_so_far(self):
        """The frames that have arrived so far, and CLOSED if the stream has ended; waits for the rest of a partial frame."""
        while self._fill(None):
            pass
        frames = []
        while self.buffer:
            frames.append(self.frame())
        if self.closed:
            frames.append(CLOSED)
        return frames

    def _cut(self):
        if not self.buffer:
            return None
        try:
            _, end = parse(self.buffer)
        except Incomplete:
            return None
        frame, self.buffer = self.buffer[:end], self.buffer[end:]
        return frame

    def _fill(self, timeout):
        """Reads once; `None`: without waiting. Returns whether data arrived."""
        if self.closed:
            return False
        self.socket.settimeout(0 if timeout is None else max(timeout, 0.001))
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
        self.buffer += data
        return bool(data)

    def close(self):
        self.socket.close()
