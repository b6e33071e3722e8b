"""Many clients behind one proxy address: nginx and Caddy, with the files of packaging/proxies."""
import asyncio
import json

import httpx
import pytest
import websockets.asyncio.client
import websockets.exceptions

from journeys.proxies import Caddy, Nginx
from support import tokens
from support.tavern import Tavern

pytestmark = [pytest.mark.alone, pytest.mark.timing]
PROXIES = [Nginx, Caddy]
TRUSTED = 'trusted_proxies = ["127.0.0.1"]\n'


def address(number):
    """A client address of its own, on loopback."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


async def connect(proxy, number):
    return await websockets.asyncio.client.connect(
        f"{proxy.ws_url}?token={tokens.token(f'user-{number}')}", compression=None, ping_interval=None, open_timeout=30, proxy=None,
        local_addr=(address(number), 0), close_timeout=1,
    )


async def crowd(proxy, count):
    """Connects all clients, subscribes them, publishes once; returns how many got the message."""
    sockets = []
    for first in range(0, count, 50):
        sockets += await asyncio.gather(*(connect(proxy, number) for number in range(first, min(first + 50, count))))

    async def reply(socket, number):
        while True:
            frame = json.loads(await asyncio.wait_for(socket.recv(), 30))
            if frame.get("id") == number:
                return frame["ok"]

    for socket in sockets:
        await socket.send('{"id":1,"op":"subscribe","channel":"room#all"}')
    await asyncio.gather(*(reply(socket, 1) for socket in sockets))
    await sockets[0].send('{"id":2,"op":"publish","channel":"room#all","data":"hello"}')

    async def message(socket):
        while True:
            if json.loads(await asyncio.wait_for(socket.recv(), 30)).get("data") == "hello":
                return 1

    received = sum(await asyncio.gather(*map(message, sockets)))
    await asyncio.gather(*(socket.close() for socket in sockets))
    return received


@pytest.mark.parametrize("kind", PROXIES)
def test_clients_behind_one_proxy_address_have_their_own_limits(kind, full):
    # In full size with the default limit of 1,000 connections per address.
    count, limits = (1_500, "") if full else (60, "[limits]\nconnections_per_address = 40\n")
    with Tavern.serve(TRUSTED + limits) as server, kind([server]) as proxy:
        assert asyncio.run(crowd(proxy, count)) == count
        assert server.metric("tavern_connections_refused_total") == 0


@pytest.mark.parametrize("kind", PROXIES)
def test_without_trusted_proxies_all_users_share_one_limit(kind):
    with Tavern.serve("[limits]\nconnections_per_address = 20\n") as server, kind([server]) as proxy:
        with pytest.raises((websockets.exceptions.InvalidStatus, websockets.exceptions.InvalidMessage, OSError, EOFError)):
            asyncio.run(crowd(proxy, 40))


@pytest.mark.parametrize("kind", PROXIES)
def test_events_arrive_through_the_proxy_as_they_happen(kind):
    """A proxy that buffers would hold them back."""
    with Tavern.serve(TRUSTED) as server, kind([server]) as proxy, httpx.Client(base_url=proxy.url, timeout=10, trust_env=False) as client:
        with client.stream("GET", f"/v1/stream?token={tokens.token('ann')}&channel=room%231") as stream:
            lines = stream.iter_lines()
            while "room#1" not in next(lines):
                pass
            said = client.post("/v1/channels/room%231/messages", json={"data": "now"}, headers={"authorization": f"Bearer {server.key}"})
            assert said.json() == {"receivers": 1}
            while '"data":"now"' not in next(lines):
                pass


@pytest.mark.parametrize("kind", PROXIES)
def test_a_page_of_the_proxys_own_site_needs_no_origins(kind):
    """The proxy passes the Host header on."""
    with Tavern.serve(TRUSTED) as server, kind([server]) as proxy:
        body = {"id": 1, "op": "hello", "token": tokens.token("ann")}
        for origin, status in ((proxy.url, 200), ("https://evil.example", 403)):
            said = httpx.post(f"{proxy.url}/v1/command", json=body, headers={"origin": origin}, trust_env=False)
            assert said.status_code == status, said.text
