"""A real nats-server process on a free port."""
import os
import shutil
import socket

from .process import Server, free_port


class NatsServer(Server):
    name = "nats-server"

    def __init__(self, *options):
        super().__init__()
        self.port = free_port()
        self.options = options

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def command(self):
        # /usr/sbin is not in every user's PATH.
        program = shutil.which(self.name, path=os.environ["PATH"] + ":/usr/sbin")
        if program is None:
            raise FileNotFoundError("nats-server is not installed; run scripts/setup")
        return [program, "-a", "127.0.0.1", "-p", str(self.port), *self.options]

    def ready(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                return probe.recv(5) == b"INFO "
        except OSError:
            return False
