"""A server whose kind `chat` keeps history, and a channel of its own for each test."""
import itertools

import pytest

from support.tavern import Tavern

COUNT = itertools.count(1)
CONFIG = """
[kinds.chat]
history_messages = 50
[kinds.score]
history_messages = 1
[kinds.vault]
history_messages = 10
history_right = "history"
[limits]
mailbox_events = 30
"""


@pytest.fixture(scope="session")
def server():
    with Tavern.dev(CONFIG) as server:
        yield server


@pytest.fixture
def channel():
    return f"chat#{next(COUNT)}"
