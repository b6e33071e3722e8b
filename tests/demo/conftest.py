"""A browser and a server whose graces are short enough to wait for."""
import pytest

from support.tavern import Tavern

from .stage import Stage

# The window in which nobody is told of a loss, and the grace of every channel.
CONFIG = """
[sessions]
resume_ms = 1200
[kinds.default]
grace_ms = 4000
"""


@pytest.fixture(scope="module")
def browser():
    with Stage() as stage:
        yield stage


@pytest.fixture
def stage(browser):
    """Everybody leaves when a test is over."""
    browser.do("complaints")
    yield browser
    browser.do("empty")


@pytest.fixture
def lobby():
    with Tavern.dev(CONFIG) as server:
        yield server
