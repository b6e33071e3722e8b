"""Each scenario runs against the original and against Tavern, with clients in Node and in Chromium."""
import contextlib
import itertools

import pytest

from radar.world import Oracle, RadarClient, Runtime, tavern
from support.redis_server import RedisServer

COUNT = itertools.count(1)


@pytest.fixture(scope="session")
def radar_redis():
    with RedisServer() as redis:
        yield redis


@contextlib.contextmanager
def pair(subject, redis):
    """Two servers of one kind that share their facts."""
    if subject == "radar":
        with Oracle(redis) as first, Oracle(redis) as second:
            yield first, second
    else:
        with tavern(options=("--node", "a")) as first:
            with tavern(options=("--node", "b"), data=first.data) as second:
                yield first, second


@pytest.fixture(scope="session", params=["radar", "tavern"])
def subject(request):
    return request.param


@pytest.fixture(scope="session")
def servers(subject, radar_redis):
    with pair(subject, radar_redis) as both:
        yield both


@pytest.fixture(scope="session", params=["node", "chromium"])
def runtime_name(request):
    return request.param


@pytest.fixture
def runtime(runtime_name, servers):
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
        if at and runtime.name == "chromium":
            # The original lets no page of another origin poll.
            config = {"transports": ["websocket"]} | config
        return RadarClient(runtime, name, servers[at], **config)

    return connect


@pytest.fixture
def room():
    return f"room/{next(COUNT)}"
