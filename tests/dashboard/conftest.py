"""One browser for all tests of the dashboard, one town to look at, and servers where nothing is."""
import pytest

from support.tavern import Tavern

from .browser import Browser
from .town import CONFIG, Town


@pytest.fixture(scope="session")
def chromium():
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium):
    """Every test ends without a word in the console and without anything the policy had to forbid."""
    yield chromium
    chromium.quiet()


@pytest.fixture(scope="session")
def town():
    with Tavern.dev(CONFIG) as server, Town(server) as town:
        town.settle()
        yield town


@pytest.fixture(scope="session")
def empty():
    """Nobody comes here."""
    with Tavern.dev() as server:
        yield server


@pytest.fixture(scope="session")
def nobody():
    """Whoever comes here is of no interest to other tests."""
    with Tavern.dev() as server:
        yield server
