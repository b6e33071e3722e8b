"""Admission: a server takes a limited number of hellos per second on every transport; the others are told when to come back."""
import asyncio
import pathlib
import sys

import httpx
import pytest

from support import tokens
from support.json_client import Socket
from support.process import until
from support.storm import quantile, storm
from support.tavern import Tavern

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients/python"))
from tavern_client import Tavern as Client  # noqa: E402

# Slower than any client that asks again and again.
RATE = 3
LIMIT = f"[limits]\nhellos_per_second = {RATE}\n"
# Enough to be refused, however fast they come.
MANY = 60


def by_socket(server, user):
    with Socket(server, greet=False) as socket:
        return socket.call("hello", token=tokens.token(user)).get("error")


def by_url(server, user):
    """The token is in the URL: the first frame is the reply."""
    with Socket(server, token=tokens.token(user), greet=False) as socket:
        return socket.frame().get("error")


def by_stream(server, user):
    url = f"{server.url}/v1/stream?token={tokens.token(user)}"
    with httpx.stream("GET", url, timeout=5, trust_env=False) as response:
        if response.status_code == 200:
            return None
        response.read()
    return check_http(response)


def by_poll(server, user):
    headers = {"Authorization": f"Bearer {tokens.token(user)}"}
    return check_http(httpx.post(f"{server.url}/v1/poll", json={"timeout_ms": 0}, headers=headers, trust_env=False))


def by_command(server, user):
    headers = {"Authorization": f"Bearer {tokens.token(user)}"}
    return check_http(httpx.post(f"{server.url}/v1/command", json={"op": "hello"}, headers=headers, trust_env=False))


def check_http(response):
    error = response.json().get("error")
    assert response.status_code == (503 if error else 200), response.text
    return error


@pytest.fixture(scope="module")
def narrow():
    with Tavern.serve(LIMIT) as server:
        yield server


@pytest.mark.parametrize("transport", [by_socket, by_url, by_stream, by_poll, by_command])
def test_hellos_above_the_rate_are_asked_to_come_back(narrow, transport):
    before = narrow.metric("tavern_hellos_refused_total")
    errors = [transport(narrow, f"{transport.__name__}-{number}") for number in range(MANY)]
    refused = [error for error in errors if error]
    assert refused, "the rate is limited"
    assert {error["code"] for error in refused} == {"unavailable"}, refused
    waits = [error["retry_after_ms"] for error in refused]
    assert all(50 <= wait <= 15_000 for wait in waits) and len(set(waits)) > len(waits) / 2, waits
    assert narrow.metric("tavern_hellos_refused_total") >= before + len(refused)
    until(lambda: transport(narrow, f"{transport.__name__}-later") is None, "a hello to be admitted", 10)


def test_a_session_that_is_connected_is_not_refused(narrow):
    until(lambda: by_socket(narrow, "ann") is None, "a hello to be admitted", 10)
    sockets = []
    until(lambda: sockets.append(Socket(narrow, greet=False)) or "ok" in sockets[-1].call("hello", token=tokens.token("ann")),
          "a session", 10)
    renewed = [sockets[-1].call("hello", token=tokens.token("ann")) for _ in range(MANY)]
    assert all("ok" in reply for reply in renewed), "a new token for the same session is no new client"
    for socket in sockets:
        socket.close()
    until(lambda: narrow.metric("tavern_hellos_in_progress") == 0, "no hello to be in progress")


def test_api_keys_are_not_refused(narrow):
    headers = {"Authorization": f"Bearer {narrow.key}"}
    polls = [httpx.post(f"{narrow.url}/v1/poll", json={"timeout_ms": 0}, headers=headers, trust_env=False) for _ in range(MANY)]
    assert 503 not in {poll.status_code for poll in polls}


def test_a_client_that_is_refused_connects_in_the_end(narrow):
    async def connect(number):
        async with Client(narrow.url, token=tokens.token(f"client-{number}")) as client:
            await client.channel("game#1").subscribe(lambda message: None)

    async def all_of_them():
        await asyncio.wait_for(asyncio.gather(*(connect(number) for number in range(3 * RATE))), 30)

    before = narrow.metric("tavern_hellos_refused_total")
    asyncio.run(all_of_them())
    assert narrow.metric("tavern_hellos_refused_total") > before


@pytest.mark.alone
@pytest.mark.timing
def test_a_storm_is_admitted_at_the_rate_and_others_do_not_wait():
    config = "[limits]\nhellos_per_second = 100\naddress_hellos_per_second = 0\n"
    with Tavern.serve(config) as server:
        result = asyncio.run(storm(server, 300, quiet_seconds=1.0))
        assert len(result.waits) == 300 and max(result.waits) < 30, f"the last one waited {max(result.waits):.1f} s"
        # 100 at once, and then 100 a second.
        assert max(result.waits) > 1.5
        assert result.attempts < 300 * 4, f"{result.attempts} attempts of 300 clients"
        assert set(result.refusals) == {"unavailable: too many clients are connecting to this node; retry later"}, result.refusals
        assert quantile(result.stormy, 0.99) < 0.2, f"p99 of messages {quantile(result.stormy, 0.99) * 1000:.0f} ms"
