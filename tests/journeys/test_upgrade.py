"""A rolling upgrade of three servers behind a proxy: clients lose nothing and see no user leave, and no request of a service fails."""
import asyncio
import contextlib
import threading

import httpx
import pytest

from journeys.proxies import Haproxy, Nginx
from support.crowd import Crowd
from support.process import until
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


class PublishingService(threading.Thread):
    """Publishes without a pause, from an address of its own, so that the proxies spread the services over the servers."""

    def __init__(self, proxy, key, number):
        super().__init__(daemon=True)
        self.proxy, self.key, self.number = proxy, key, number
        self.done, self.failed, self.ended = 0, [], threading.Event()

    def run(self):
        transport = httpx.HTTPTransport(local_address=f"127.1.0.{self.number}", trust_env=False)
        with httpx.Client(base_url=self.proxy.url, transport=transport, headers={"authorization": f"Bearer {self.key}"}, timeout=30) as client:
            while not self.ended.wait(0.005):
                answer = client.post(f"/v1/channels/room:{self.number}/messages", json={"data": self.done})
                if answer.status_code == 200:
                    self.done += 1
                else:
                    self.failed.append((answer.status_code, answer.text))


@pytest.mark.parametrize("kind", [Nginx, Haproxy])
def test_no_publish_of_a_service_fails_during_an_upgrade(kind, tmp_path):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Tavern.dev(CONFIG, data=tmp_path / "data")) for _ in range(3)]
        proxy = stack.enter_context(kind(servers))
        services = [PublishingService(proxy, servers[0].key, number) for number in range(1, 9)]
        [service.start() for service in services]

        def goes_on():
            before = [service.done for service in services]
            until(lambda: all(service.done > done + 5 for service, done in zip(services, before)), "every service to publish", 30)

        goes_on()
        for server in servers:
            assert server.terminate(timeout=40) == 0, server.log()
            goes_on()
            server.start()
            # The proxies look again every second or two whether it is back.
            threading.Event().wait(3)
            goes_on()
        for service in services:
            service.ended.set()
            service.join(30)
        assert [service.failed for service in services] == [[]] * len(services)
