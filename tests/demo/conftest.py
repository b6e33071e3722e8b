"""A browser, and a server with short grace periods."""
import pytest

from support.tavern import Tavern

from .demo_browser import DemoBrowser

# The resume window, in which a loss is not reported, and the grace period of every channel.
CONFIG = """
[sessions]
resume_ms = 1200
[kinds.default]
grace_ms = 4000
"""


@pytest.fixture(scope="module")
def browser():
    with DemoBrowser() as demo:
        yield demo


@pytest.fixture
def demo(browser):
    """The shared browser; all users leave after each test."""
    browser.do("complaints")
    yield browser
    browser.do("empty")


@pytest.fixture
def lobby():
    with Tavern.dev(CONFIG) as server:
        yield server
