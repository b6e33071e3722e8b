"""Topics and subscriptions of its own for each test, so that tests can share a server; keys that several of them use."""
import itertools

import httpx
import pytest

from support.tavern import Tavern

COUNT = itertools.count(1)


@pytest.fixture(scope="session")
def server():
    with Tavern.dev() as started:
        yield started


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
