"""One server in serve mode for each file."""
import itertools

import pytest

from control.service import Service
from support.tavern import Tavern

COUNT = itertools.count(1)

CONFIG = """
[sessions]
resume_ms = 60000
[kinds.user]
grace_ms = 60000
[kinds.game]
grace_ms = 60000
"""


@pytest.fixture(scope="module")
def serve():
    with Tavern.serve(CONFIG) as server:
        yield server


@pytest.fixture
def service(serve):
    with Service(serve) as service:
        yield service


@pytest.fixture
def user():
    """A user whom no other test knows."""
    return f"user{next(COUNT)}"
