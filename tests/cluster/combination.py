"""The engines that a cluster can stand on, and clusters on them.

A combination is a store and a bus. Its engines are started once, when the first cluster needs them; a cluster has a folder, a
schema or a prefix of its own, so that clusters on the same engines do not hear each other.
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
POSTGRES = ("postgres+nats", "postgres+redis")
ALL = (FOLDER, *POSTGRES, "redis+redis")
COUNT = itertools.count(1)


class Engines:
    """The servers that the combinations use, started when the first one asks."""

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
    def place(self):
        """Where one cluster keeps its facts and speaks."""
        number, options = next(COUNT), []
        if self.store == "postgres":
            options += ["--store", self.engines.server("postgres").url(f"tavern_{number}")]
        elif self.store != "sqlite":
            options += ["--store", self.engines.server(self.store).url]
        if self.bus != "local":
            options += ["--bus", self.engines.server(self.bus).url]
        with folder() as data:
            yield Place(f"tavern-{number}", options, data if self.store == "sqlite" else None)

    @contextlib.contextmanager
    def cluster(self, count, config=""):
        """That many servers, started."""
        with self.place() as place, contextlib.ExitStack() as stack:
            yield [stack.enter_context(place.server(config)) for _ in range(count)]


class Place:
    def __init__(self, prefix, options, data):
        self.prefix, self.options, self.data = prefix, options, data

    def server(self, config=""):
        """One more server of this cluster, to be started. On SQLite they share a folder; else each has its own."""
        return Tavern.dev(f'prefix = "{self.prefix}"\n{config}', self.options, data=self.data)


@contextlib.contextmanager
def folder():
    # With a space in its name: paths are not words.
    path = pathlib.Path(tempfile.mkdtemp(prefix="tavern-test cluster-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
