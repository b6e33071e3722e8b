"""Combinations of engines, and clusters on them.

A combination is a store and a bus. Its engines start once, when the first cluster needs them. Each cluster has its own folder,
schema or prefix, so that clusters on the same engines are isolated.
"""
import contextlib
import itertools
import pathlib
import shutil
import tempfile

from support.nats_server import NatsServer
from support.postgres_server import PostgresServer
from support.redis_server import RedisServer
from support.tavern import Tavern

FOLDER = "sqlite+local"
POSTGRES = ("postgres+nats", "postgres+redis", "postgres+postgres")
ALL = (FOLDER, *POSTGRES, "redis+redis")
COUNT = itertools.count(1)


class Engines:
    """The engine servers, started on first use."""

    KINDS = {"postgres": PostgresServer, "nats": NatsServer, "redis": RedisServer}

    def __init__(self):
        self.stack = contextlib.ExitStack()
        self.started = {}

    def server(self, kind):
        if kind not in self.started:
            self.started[kind] = self.stack.enter_context(self.KINDS[kind]())
        return self.started[kind]

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        self.stack.close()


class Combination:
    def __init__(self, name, engines):
        self.name, self.engines = name, engines
        self.store, self.bus = name.split("+")

    @contextlib.contextmanager
    def settings(self):
        """Store, bus and prefix of a new cluster."""
        number, options = next(COUNT), []
        if self.store == "postgres":
            options += ["--store", self.engines.server("postgres").url(f"tavern_{number}")]
        elif self.store != "sqlite":
            options += ["--store", self.engines.server(self.store).url]
        if self.bus == "postgres" != self.store:
            options += ["--bus", self.engines.server("postgres").url(f"tavern_{number}")]
        elif self.bus not in ("local", "postgres"):
            # On Postgres without another bus, the bus is on the database of the store.
            options += ["--bus", self.engines.server(self.bus).url]
        with folder() as data:
            yield ClusterSettings(f"tavern-{number}", options, data if self.store == "sqlite" else None)

    @contextlib.contextmanager
    def cluster(self, count, config=""):
        """Starts this many servers."""
        with self.settings() as settings, contextlib.ExitStack() as stack:
            servers = [stack.enter_context(settings.server(config)) for _ in range(count)]
            try:
                yield servers
            finally:
                # Together: none of them begins to take over the others.
                for server in servers:
                    if server.process.poll() is None:
                        server.process.kill()


class ClusterSettings:
    def __init__(self, prefix, options, data):
        self.prefix, self.options, self.data = prefix, options, data

    def server(self, config=""):
        """One more server of this cluster, not started. On SQLite servers share a folder, otherwise each has its own."""
        return Tavern.dev(f'prefix = "{self.prefix}"\n{config}', self.options, data=self.data)


@contextlib.contextmanager
def folder():
    # With a space in its name, to test quoting.
    path = pathlib.Path(tempfile.mkdtemp(prefix="tavern-test cluster-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
