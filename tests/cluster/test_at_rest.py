"""A cluster at rest: users who are connected and do nothing cause no writes. What remains is one lease per server."""
import contextlib
import time

import pytest

from support.json_client import Socket
from support.process import until

HEARTBEAT_MS = 200
CONFIG = f"""
[nodes]
heartbeat_ms = {HEARTBEAT_MS}
lease_ms = 5000
[presence]
sweep_ms = 500
"""
USERS = 40
LEASES = 20


@pytest.mark.only("sqlite+local", "postgres+nats", "redis+redis", reason="each store once")
def test_silent_users_cause_no_commits(combination):
    with combination.cluster(2, CONFIG) as servers, contextlib.ExitStack() as stack:
        for number in range(USERS):
            user = stack.enter_context(Socket(servers[number % 2], user=f"user-{number}"))
            user.ok("follow", user=f"user-{(number + 1) % USERS}")
            user.ok("join", channel="game#hall")
            user.ok("subscribe", channel="game#hall", presence=True)

        def commits():
            return [server.metric("tavern_store_commit_seconds_count") for server in servers]

        def at_rest():
            """Whether both servers commit nothing but their leases while they renew them often enough."""
            before, began = commits(), time.monotonic()
            until(lambda: all(now >= then + LEASES for now, then in zip(commits(), before)), "leases to be renewed", 60)
            heartbeats = (time.monotonic() - began) * 1000 / HEARTBEAT_MS
            return all(now - then <= heartbeats + 1 for now, then in zip(commits(), before))

        until(at_rest, "the servers to commit only leases", 60)
        assert at_rest(), "and nothing later"
