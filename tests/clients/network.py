"""A TCP proxy between one actor and the servers. It can be cut, restored, stalled, slowed, refuse or swallow
WebSockets, or answer itself.

Must hold: bytes on a live connection are neither lost nor reordered; all threads end with the proxy.
"""
import contextlib
import socket
import threading
import time

IMPOSTOR = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\nconnection: close\r\n\r\n<html></html>"
REFUSAL = b"HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain\r\ncontent-length: 15\r\nconnection: close\r\n\r\nno upgrades now"
PIECE = 16 * 1024


class Network:
    def __init__(self, ports, at):
        self.ports, self.at = ports, at
        self.changed = threading.Condition()
        self.over = False
        self.open, self.stalled, self.refuses, self.swallows, self.answers = True, False, False, False, False
        self.delay, self.rate = 0.0, None
        self.pairs = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(0.05)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while not self.over:
            with contextlib.suppress(TimeoutError, OSError):
                near, _ = self.listener.accept()
                threading.Thread(target=self.welcome, args=(near,), daemon=True).start()

    def welcome(self, near):
        with contextlib.suppress(OSError):
            if not self.open:
                near.close()
                return
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.answers:
                near.settimeout(5)
                near.recv(PIECE)
                near.sendall(IMPOSTOR)
                near.close()
                return
            upgrade = (self.refuses or self.swallows) and self.is_upgrade(near)
            if upgrade and self.swallows:
                # Until the client gives up.
                while near.recv(PIECE):
                    pass
                near.close()
                return
            if upgrade:
                near.sendall(REFUSAL)
                near.close()
                return
            far = socket.create_connection(("127.0.0.1", self.ports[self.at]))
            far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.pairs.append((near, far))
            threading.Thread(target=self.carry, args=(near, far), daemon=True).start()
            self.carry(far, near)
            return
        near.close()

    @staticmethod
    def is_upgrade(near):
        """Peeks at the request line."""
        near.settimeout(5)
        begun = near.recv(64, socket.MSG_PEEK)
        near.settimeout(None)
        return begun.startswith(b"GET /v1/connect")

    def carry(self, source, sink):
        """Copies one direction of a connection, with delay and rate limit, in order."""
        try:
            while not self.over:
                chunk = source.recv(PIECE if self.rate is None else 1024)
                if not chunk:
                    break
                if self.delay:
                    time.sleep(self.delay)
                if self.rate:
                    time.sleep(len(chunk) / self.rate)
                with self.changed:
                    self.changed.wait_for(lambda: not self.stalled or self.over)
                sink.sendall(chunk)
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def act(self, action, step):
        getattr(self, action)(step)

    def cut(self, _step):
        self.open = False
        self.drop({})

    def drop(self, _step):
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        with self.changed:
            # Stalled data is lost with its connection.
            self.stalled = False
            self.changed.notify_all()

    def restore(self, _step):
        with self.changed:
            self.open, self.stalled, self.refuses, self.swallows, self.answers = True, False, False, False, False
            self.delay, self.rate = 0.0, None
            self.changed.notify_all()

    def stall(self, _step):
        self.stalled = True

    def slow(self, step):
        self.delay, self.rate = step.get("delay_ms", 0) / 1000, step.get("bytes_per_s")

    def refuse_websocket(self, _step):
        self.refuses = True

    def swallow_websocket(self, _step):
        self.swallows = True

    def impostor(self, _step):
        self.answers = True
        self.drop({})

    def to(self, step):
        self.at = step["node"]
        self.drop({})

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.over = True
        self.drop({})
        self.thread.join()
        self.listener.close()
