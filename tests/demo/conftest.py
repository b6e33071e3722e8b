"""A browser and a server whose graces are short enough to wait for."""
import pytest

from support.tavern import Tavern

from .stage import Stage

# The lobby's grace; the window in which nobody is told of a loss.
GRACE_MS, RESUME_MS = 4000, 800
CONFIG = f"""
[sessions]
resume_ms = {RESUME_MS}
[kinds.lobby]
grace_ms = {GRACE_MS}
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
