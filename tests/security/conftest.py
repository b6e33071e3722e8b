"""A separate channel and user for each test, so that tests can share a server."""
import itertools

import pytest

COUNT = itertools.count(1)


@pytest.fixture
def channel():
    return f"room#{next(COUNT)}"


@pytest.fixture
def user():
    return f"user-{next(COUNT)}"
