"""Every test of parties runs on each of these engines, with users on one server and on two, with sockets and with polls.

Tests of one combination run one after another, so that they share its servers; each has users of its own.
"""
import contextlib
import itertools

import pytest

from cluster.combination import FOLDER, Combination, Engines
from parties.guest import CLIENTS

# Postgres with Redis is left out: the bus carries nothing of the parties but nudges, and both are here with another partner.
COMBINATIONS = (FOLDER, "redis+redis", "postgres+nats")
COUNT = itertools.count(1)
# How people come: by what, and whether to one server or to two. The engines that are servers themselves get two of the four.
WAYS = (("socket", False), ("socket", True), ("poll", False), ("poll", True))

# Whatever is slow here must not expire while a test is at it.
CALM = """
[nodes]
heartbeat_ms = 500
lease_ms = 3000
[parties]
max_members = 4
invites_per_minute = 100
"""

# Time passes quickly.
QUICK = """
[sessions]
resume_ms = 300
[nodes]
heartbeat_ms = 200
lease_ms = 1500
[kinds.user]
grace_ms = 500
[parties]
invite_ms = 4000
grace_ms = 1500
reinvite_ms = 500
gather_ms = 700
block_ms = 700
max_pending = 3
invites_per_minute = 12
require_ready = true
"""


def pytest_generate_tests(metafunc):
    names = metafunc.fixturenames
    if "client" in names:
        cases = [(name, *way) for name in COMBINATIONS for way in (WAYS if name == FOLDER else WAYS[1:3])]
        ids = [f"{name}-{client}-{'apart' if spread else 'together'}" for name, client, spread in cases]
        metafunc.parametrize("combination, client, spread", cases, ids=ids, indirect=["combination"], scope="session")
    elif "combination" in names:
        metafunc.parametrize("combination", COMBINATIONS, indirect=True, scope="session")


@pytest.fixture(scope="session")
def engines():
    with Engines() as started:
        yield started


@pytest.fixture(scope="session")
def combination(request, engines):
    return Combination(request.param, engines)


@pytest.fixture(scope="session")
def calm_nodes(combination):
    with combination.cluster(2, CALM) as servers:
        yield servers


@pytest.fixture(scope="session")
def quick_nodes(combination):
    with combination.cluster(2, QUICK) as servers:
        yield servers


class Table:
    """Seats people: all on the first server, or one after another on each of them."""

    def __init__(self, servers, stack, kind="socket", spread=True):
        self.servers = servers if spread else servers[:1]
        self.stack, self.kind = stack, kind
        self.number = next(COUNT)
        self.turns = itertools.cycle(self.servers)

    def name(self, name):
        return f"{name}-{self.number}"

    def seat(self, name, server=None, kind=None):
        """Somebody who is known to be there."""
        guest = CLIENTS[kind or self.kind](server or next(self.turns), self.name(name))
        return self.stack.enter_context(guest).arrive()

    def seats(self, names):
        return [self.seat(name) for name in names.split()]

    def party(self, names):
        """A party of these; the first leads. Their letters so far are read."""
        leader, *others = guests = self.seats(names)
        for at, other in enumerate(others):
            leader.brings(other)
            other.letter()
            leader.letter()
            for earlier in others[:at]:
                earlier.letter()
                earlier.letter()
        return guests


@pytest.fixture
def table(calm_nodes, client, spread):
    """Of patient servers."""
    with contextlib.ExitStack() as stack:
        yield Table(calm_nodes, stack, client, spread)


@pytest.fixture
def brisk(quick_nodes):
    """Of servers on which time passes quickly; people are on both of them."""
    with contextlib.ExitStack() as stack:
        yield Table(quick_nodes, stack)
