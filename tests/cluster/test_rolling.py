"""Rolling restarts: every server is restarted in turn under load. Clients must see no loss, no duplicate and no presence event.

With more clients: `TAVERN_CROWD=2000 … pytest tests/cluster/test_rolling.py -s`.
"""
import asyncio
import contextlib
import os
import time

import pytest

from cluster.combination import FOLDER
from support.crowd import Crowd

CROWD = int(os.environ.get("TAVERN_CROWD", "36"))

CONFIG = """
[limits]
connections_per_address = 100000
mailbox_events = 16384
[kinds.default]
grace_ms = 6000
"""


async def run_crowd(servers, restarts):
    crowd = Crowd(servers, CROWD)
    began = time.monotonic()
    await crowd.begin()
    print(f"{CROWD} clients are connected after {time.monotonic() - began:.1f} s")
    loop = asyncio.get_running_loop()
    for server in restarts:
        began = time.monotonic()
        code = await loop.run_in_executor(None, lambda: server.terminate(timeout=40))
        assert code == 0, server.log()
        stopped = time.monotonic()
        await loop.run_in_executor(None, server.start)
        print(f"stopped in {stopped - began:.1f} s, ready again after {time.monotonic() - stopped:.1f} s")
        await asyncio.sleep(1)
    # The last clients are still reconnecting.
    await crowd.until(crowd.all_connected, 10)
    failures = await crowd.check()
    moves = sum(client.moves for client in crowd.clients)
    longest = max(client.longest for client in crowd.clients)
    messages = sum(sum(publisher.accepted.values()) for publisher in crowd.publishers)
    print(f"{moves} resumes, the longest {longest:.2f} s; {messages} messages")
    assert failures == [], f"{len(failures)} failures: {failures[:10]}"
    return crowd


def test_a_rolling_restart_of_three_servers_is_invisible(combination):
    # Different numbers of threads: a session has another shard on each server.
    with combination.settings() as settings, contextlib.ExitStack() as stack:
        servers = [stack.enter_context(settings.server(f"threads = {n}\n{CONFIG}")) for n in (1, 2, 3)]
        crowd = asyncio.run(run_crowd(servers, servers))
        assert sum(client.moves for client in crowd.clients) >= CROWD, "each client's server was restarted at least once"


@pytest.mark.only(FOLDER, reason="test_stops covers the other stores")
@pytest.mark.parametrize("times", [2])
def test_a_restart_of_a_single_server_is_invisible(combination, times):
    with combination.cluster(1, CONFIG) as servers:
        asyncio.run(run_crowd(servers, servers * times))
