"""A shared browser, a server with sample data, and empty servers."""
import pytest

from support.tavern import Tavern

from .browser import Browser
from .sample import CONFIG, SampleData


@pytest.fixture(scope="session")
def chromium():
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium):
    """Every test must end without console errors and policy violations."""
    yield chromium
    chromium.quiet()


@pytest.fixture(scope="session")
def sample():
    with Tavern.dev(CONFIG) as server, SampleData(server) as sample:
        sample.create()
        yield sample


@pytest.fixture(scope="session")
def empty():
    """A server without users."""
    with Tavern.dev() as server:
        yield server


@pytest.fixture(scope="session")
def scratch():
    """A server that tests may change."""
    with Tavern.dev() as server:
        yield server
