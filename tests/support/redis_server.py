"""A real redis-server as the oracle: a process on a free port without persistence."""
import socket

from .process import Server, free_port


class RedisServer(Server):
    name = "redis-server"

    def __init__(self, *options):
        super().__init__()
        self.resp_port = free_port()
        self.options = options

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.resp_port}"

    def command(self):
        return [
            "redis-server", "--port", str(self.resp_port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
            "--enable-debug-command", "yes", *self.options,
        ]

    def ready(self):
        try:
            with socket.create_connection(("127.0.0.1", self.resp_port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
