"""Every party test runs on each of these combinations, with users on one server and on two, over WebSockets and polls.

Tests of one combination run one after another and share its servers; each has its own users.
"""
import contextlib
import itertools

import pytest

from cluster.combination import FOLDER, Combination, Engines
from parties.party_user import CLIENTS

# Without Postgres + Redis: parties use the bus only for wake-ups, and both engines are covered by other combinations.
COMBINATIONS = (FOLDER, "redis+redis", "postgres+nats", "postgres+postgres")
COUNT = itertools.count(1)
# The client and whether users are on one server or two. Combinations with engine servers run two of the four cases.
WAYS = (("socket", False), ("socket", True), ("poll", False), ("poll", True))

# Long timeouts: nothing may expire during a test.
CALM = """
[nodes]
heartbeat_ms = 500
lease_ms = 3000
[parties]
max_members = 4
invites_per_minute = 100
"""

# Short timeouts.
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
grace_ms = 3000
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


class Users:
    """Connects users: all to the first server, or to each server in turn."""

    def __init__(self, servers, stack, kind="socket", spread=True):
        self.servers = servers if spread else servers[:1]
        self.stack, self.kind = stack, kind
        self.number = next(COUNT)
        self.turns = itertools.cycle(self.servers)

    def name(self, name):
        return f"{name}-{self.number}"

    def connect(self, name, server=None, kind=None):
        """A user who is online."""
        member = CLIENTS[kind or self.kind](server or next(self.turns), self.name(name))
        return self.stack.enter_context(member).wait_online()

    def connect_all(self, names):
        return [self.connect(name) for name in names.split()]

    def party(self, names):
        """A party of these users; the first is the leader. Their party events so far are consumed."""
        leader, *others = members = self.connect_all(names)
        for at, other in enumerate(others):
            leader.invite_and_accept(other)
            other.next_event()
            leader.next_event()
            for earlier in others[:at]:
                earlier.next_event()
                earlier.next_event()
        return members


@pytest.fixture
def users(calm_nodes, client, spread):
    """Users on servers with long timeouts."""
    with contextlib.ExitStack() as stack:
        yield Users(calm_nodes, stack, client, spread)


@pytest.fixture
def quick_users(quick_nodes):
    """Users on both of two servers with short timeouts."""
    with contextlib.ExitStack() as stack:
        yield Users(quick_nodes, stack)
