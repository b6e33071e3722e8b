"""When a part of the client fails, every pending and every later call ends within two seconds."""
import asyncio
import base64
import json
import time

import pytest
from fake_server import FakeServer
from tavern_client import Tavern, TavernError, transports
from tavern_client.session import Session

LIMIT_S = 2.0


def fail(*_, **__):
    raise KeyError("injected")


async def failing(*_):
    fail()


async def never(*_):
    await asyncio.get_running_loop().create_future()


def soon():
    claims = base64.urlsafe_b64encode(json.dumps({"exp": time.time() + 2}).encode()).decode()
    return f"h.{claims}.s"


async def breaks_reading(tavern, connection):
    tavern._session._link.receive = failing
    await connection.message(1, "x")


async def breaks_writing(tavern, connection):
    tavern._session._link.send = failing
    asyncio.ensure_future(tavern.channel("game#1").leave()).add_done_callback(lambda done: done.exception())


async def breaks_the_heartbeat(tavern, connection):
    tavern._session.ticket.seq = "x"


async def breaks_the_renewal(tavern, connection):
    asked = asyncio.Event()

    async def ask(*_):
        asked.set()
        fail()

    tavern._session.ask = ask
    await asked.wait()


async def breaks_reading_and_closing(tavern, connection):
    tavern._session._link.close = never
    await breaks_reading(tavern, connection)


PARTS = [breaks_reading, breaks_writing, breaks_the_heartbeat, breaks_the_renewal, breaks_reading_and_closing]


async def every_call_fails(tavern, broken):
    """Breaks the client while a call waits."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    pending = asyncio.create_task(tavern.channel("game#1").who())
    await asyncio.sleep(0)
    await broken()
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(TavernError, match="failed: the client failed") as failed:
            await pending
        assert isinstance(failed.value.__cause__, (KeyError, TypeError))
        with pytest.raises(TavernError, match="failed: the client failed"):
            await Session.ask(tavern._session, "join", {})
    assert tavern.state == "closed"


@pytest.mark.parametrize("part", PARTS)
def test_when_a_part_of_the_client_fails_every_call_ends(part):
    async def run():
        renews = part is breaks_the_renewal
        tokens = iter([soon(), "fresh"])
        async with FakeServer(heartbeat_ms=200) as server:
            server.replies["who"] = None
            tavern = Tavern(server.url, **({"get_token": lambda: next(tokens)} if renews else {"user": "ann"}))
            await tavern.connect()
            connection = await server.connection(1)
            await every_call_fails(tavern, lambda: part(tavern, connection))

    asyncio.run(run())


def test_when_leaving_a_stand_in_fails_every_call_ends(monkeypatch):
    async def run():
        breaks = asyncio.Event()

        async def prefer(_):
            await breaks.wait()
            fail()

        monkeypatch.setattr(Session, "_prefer", prefer)
        async with FakeServer() as server:
            server.replies["who"] = None
            tavern = Tavern(server.url, user="ann")
            await tavern.connect()

            async def broken():
                breaks.set()

            await every_call_fails(tavern, broken)

    asyncio.run(run())


@pytest.mark.parametrize("name", ["sse", "poll"])
def test_when_a_reader_over_http_fails_every_call_ends(name, monkeypatch):
    async def run():
        breaks = asyncio.Event()

        class Broken(transports.TRANSPORTS[name]):
            async def open(self):
                return FakeServer().welcome({})

            async def receive(self):
                await breaks.wait()
                fail()

            send = never

        monkeypatch.setitem(transports.TRANSPORTS, name, Broken)
        tavern = Tavern("http://127.0.0.1:9", user="ann", transports=[name])
        await tavern.connect()

        async def broken():
            breaks.set()

        await every_call_fails(tavern, broken)

    asyncio.run(run())
