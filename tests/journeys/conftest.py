"""Journeys: what a new user does from the first page to production, with the real programs they would use.

`make test` runs a short path of each. `make journeys` (JOURNEYS=full) runs them in full size.
"""
import os

import pytest


@pytest.fixture(scope="session")
def full():
    return os.environ.get("JOURNEYS") == "full"
