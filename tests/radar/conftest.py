"""Each scenario runs against the original and against Tavern: in Node and in Chromium, on one server and on two, on each kind of
store.
"""
import contextlib
import itertools

import pytest

from cluster.combination import Combination, Engines
from radar.world import CONFIG, Oracle, RadarClient, Runtime
from support.redis_server import RedisServer

COUNT = itertools.count(1)
# The servers, and where the clients run.
SETTINGS = [
    ("radar", "node"),
    ("radar", "chromium"),
    ("sqlite+local", "node"),
    ("sqlite+local", "chromium"),
    ("redis+redis", "node"),
    ("postgres+nats", "node"),
    ("one server", "node"),
    ("one server", "chromium"),
]


@pytest.fixture(scope="session")
def radar_redis():
    with RedisServer() as redis:
        yield redis


@pytest.fixture(scope="session")
def radar_engines():
    with Engines() as engines:
        yield engines


@contextlib.contextmanager
def pair(subject, redis, engines):
    """Two servers of one kind that share their facts: of the original, or of Tavern on a combination of engines. With "one server"
    both are the same."""
    if subject == "radar":
        with Oracle(redis) as first, Oracle(redis) as second:
            yield first, second
        return
    alone = subject == "one server"
    with Combination("sqlite+local" if alone else subject, engines).cluster(1 if alone else 2, CONFIG) as servers:
        yield servers[0], servers[-1]


@pytest.fixture(scope="session", params=SETTINGS, ids=lambda setting: f"{setting[0]}, {setting[1]}")
def setting(request):
    return request.param


@pytest.fixture(scope="session")
def servers(setting, radar_redis, radar_engines):
    with pair(setting[0], radar_redis, radar_engines) as both:
        yield both


@pytest.fixture
def runtime(setting, servers):
    runtime_name = setting[1]
    with Runtime(runtime_name) as runtime:
        if runtime_name == "chromium":
            runtime.do("open", url=servers[0].url)
        yield runtime


@pytest.fixture
def node_runtime():
    with Runtime("node") as runtime:
        yield runtime


@pytest.fixture
def join(runtime, servers):
    """Connects a client to the first server, or to another one."""
    def connect(name, at=0, **config):
        if servers[at] is not servers[0] and runtime.name == "chromium":
            # The original lets no page of another origin poll.
            config = {"transports": ["websocket"]} | config
        return RadarClient(runtime, name, servers[at], **config)

    return connect


@pytest.fixture
def room():
    return f"room/{next(COUNT)}"
