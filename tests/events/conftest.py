"""Separate topics and subscriptions for each test, so that tests can share a server; shared API keys.

Every test with the shared server or a `combination` runs on each of these combinations, or on those in `only`, which states the reason.
"""
import itertools

import httpx
import pytest

from cluster.combination import Combination, Engines

# Without Postgres + Redis: events use the bus only for wake-ups, and both engines are covered by other combinations.
COMBINATIONS = ("sqlite+local", "redis+redis", "postgres+nats", "postgres+postgres")
COUNT = itertools.count(1)


def pytest_generate_tests(metafunc):
    if "combination" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("only")
        metafunc.parametrize("combination", COMBINATIONS if only is None else only.args, indirect=True, scope="session")


@pytest.fixture(scope="session")
def engines():
    with Engines() as started:
        yield started


@pytest.fixture(scope="session")
def combination(request, engines):
    return Combination(request.param, engines)


@pytest.fixture(scope="session")
def nodes(combination):
    """A cluster of two servers."""
    with combination.cluster(2) as servers:
        yield servers


@pytest.fixture(scope="session")
def server(nodes):
    return nodes[0]


@pytest.fixture(scope="session")
def keys(server):
    """Two services that publish and subscribe."""
    return [server.api_key("events", "subscriptions") for _ in range(2)]


def client(server, key):
    headers = {"authorization": f"Bearer {key}"}
    return httpx.Client(base_url=server.url, headers=headers, timeout=40, trust_env=False)


@pytest.fixture(scope="session")
def ann(server, keys):
    with client(server, keys[0]) as api:
        yield api


@pytest.fixture(scope="session")
def bob(server, keys):
    with client(server, keys[1]) as api:
        yield api


@pytest.fixture(scope="session")
def admin(server):
    with client(server, server.key) as api:
        yield api


@pytest.fixture
def topic():
    return f"topic-{next(COUNT)}"


@pytest.fixture
def name():
    return f"Sub-{next(COUNT)}"
