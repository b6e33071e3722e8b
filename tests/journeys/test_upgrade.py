"""A rolling upgrade of three servers behind HAProxy: clients lose nothing and see no user leave."""
import asyncio
import contextlib

import pytest

from journeys.proxies import Haproxy
from support.crowd import Crowd
from support.tavern import Tavern

pytestmark = [pytest.mark.alone, pytest.mark.timing]
CONFIG = """
trusted_proxies = ["127.0.0.1"]
[limits]
connections_per_address = 100000
mailbox_events = 16384
[kinds.default]
grace_ms = 6000
"""


def is_repeated(event):
    """A repeated status: a follower whose session has migrated may get one. No user has left."""
    return event["event"] == "status" and event["change"] == "none" and event["status"]["online"] and not event["status"]["leaving"]


async def upgrade(proxy, servers, count):
    crowd = Crowd([proxy], count)
    await crowd.begin()
    loop = asyncio.get_running_loop()
    for server in servers:
        code = await loop.run_in_executor(None, lambda: server.terminate(timeout=40))
        assert code == 0, server.log()
        await loop.run_in_executor(None, server.start)
        # As the documentation says: the next server when this one is ready. The proxy checks every second.
        await asyncio.sleep(2)
    await crowd.until(crowd.all_connected, 15)
    for client in crowd.clients:
        client.changes = [event for event in client.changes if not is_repeated(event)]
    return await crowd.check(), sum(client.moves for client in crowd.clients)


def test_clients_do_not_notice_an_upgrade(full, tmp_path):
    count = 300 if full else 24
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Tavern.dev(CONFIG, data=tmp_path / "data")) for _ in range(3)]
        proxy = stack.enter_context(Haproxy(servers))
        failures, moves = asyncio.run(upgrade(proxy, servers, count))
        assert failures == [], f"{len(failures)} failures: {failures[:10]}"
        assert moves >= count, "the server of every client was restarted"
