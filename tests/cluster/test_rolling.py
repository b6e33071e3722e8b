"""Rolling restarts: every server is stopped and started again in turn, under clients that are listened to, watched
and spoken to without a pause. Nobody may notice.

By hand, with as many clients as are wanted: `TAVERN_CROWD=2000 … pytest tests/cluster/test_rolling.py -s`.
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


async def live_through(servers, restarts):
    crowd = Crowd(servers, CROWD)
    began = time.monotonic()
    await crowd.begin()
    print(f"{CROWD} clients are there after {time.monotonic() - began:.1f} s")
    loop = asyncio.get_running_loop()
    for server in restarts:
        began = time.monotonic()
        code = await loop.run_in_executor(None, lambda: server.terminate(timeout=40))
        assert code == 0, server.log()
        stopped = time.monotonic()
        await loop.run_in_executor(None, server.start)
        print(f"stopped in {stopped - began:.1f} s, ready again after {time.monotonic() - stopped:.1f} s")
        await asyncio.sleep(1)
    # The last ones are still on their way back.
    await crowd.until(crowd.everybody_is_back, 10)
    failures = await crowd.check()
    moves = sum(guest.moves for guest in crowd.guests)
    longest = max(guest.longest for guest in crowd.guests)
    words = sum(sum(speaker.accepted.values()) for speaker in crowd.speakers)
    print(f"{moves} resumes, the longest {longest:.2f} s; {words} words")
    assert failures == [], f"{len(failures)} failures: {failures[:10]}"
    return crowd


def test_three_servers_are_restarted_in_turn_and_nobody_notices(combination):
    # With unlike numbers of threads: a session's shard is another one on each.
    with combination.place() as place, contextlib.ExitStack() as stack:
        servers = [stack.enter_context(place.server(f"threads = {n}\n{CONFIG}")) for n in (1, 2, 3)]
        crowd = asyncio.run(live_through(servers, servers))
        assert sum(guest.moves for guest in crowd.guests) >= CROWD, "everybody's server was stopped once"


@pytest.mark.only(FOLDER, reason="what a last server leaves in each store is shown in a second by test_stops")
@pytest.mark.parametrize("times", [2])
def test_a_server_alone_is_restarted_and_nobody_notices(combination, times):
    with combination.cluster(1, CONFIG) as servers:
        asyncio.run(live_through(servers, servers * times))
