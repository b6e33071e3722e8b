"""One server with two apps, for the tests that do not stop it."""
import itertools

import pytest

from cluster.combination import ALL, Combination, Engines
from pusher.world import App, Clients
from support.tavern import Tavern

COUNT = itertools.count(1)


@pytest.fixture(scope="session")
def app():
    return App(1)


@pytest.fixture(scope="session")
def other_app():
    return App(2, client_events="false")


@pytest.fixture(scope="session")
def server(app, other_app):
    with Tavern.serve(app.config + other_app.config + "[clock]\ntoken_leeway_ms = 0\n") as server:
        yield server


@pytest.fixture(scope="session")
def engines():
    with Engines() as engines:
        yield engines


@pytest.fixture(scope="session", params=ALL)
def combination(request, engines):
    return Combination(request.param, engines)


@pytest.fixture
def clients():
    with Clients() as clients:
        yield clients


@pytest.fixture
def api(clients, app, server):
    """The server library of the first app. Clients need it: it signs for them."""
    return clients.server(app, server)


@pytest.fixture
def room():
    return f"room-{next(COUNT)}"
