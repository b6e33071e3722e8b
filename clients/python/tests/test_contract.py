"""States, limits and restoring, as clients/spec.md has them."""
import asyncio
import logging

import pytest
from fake_server import FakeServer, eventually
from tavern_client import Tavern, TavernError, session, transports
from test_session import async_test


@async_test
async def test_the_state_is_one_of_five():
    async with FakeServer() as server:
        tavern = Tavern(server.url, user="ann")
        assert tavern.state == "idle"
        connecting = asyncio.create_task(tavern.connect())
        await asyncio.sleep(0)
        assert tavern.state == "connecting" and tavern.transport is None
        await connecting
        assert (tavern.state, tavern.transport) == ("open", "websocket")
        await tavern.suspend()
        assert tavern.state == "suspended"
        await tavern.connect()
        await tavern.close()
        assert tavern.state == "closed"
        await tavern.suspend()
        assert tavern.state == "closed"


@async_test
async def test_a_call_ends_with_its_limit_and_says_whether_it_may_have_been_executed():
    async with FakeServer() as server, Tavern(server.url, user="ann", command_timeout=0.1) as tavern:
        server.replies |= {"publish": None, "join": None}
        for call, code in [(tavern.channel("game#1").publish(1), "unknown_outcome"), (tavern.channel("game#1").join(1), "timeout")]:
            with pytest.raises(TavernError) as late:
                await call
            assert late.value.code == code


@async_test
async def test_without_a_hello_in_time_the_next_transport_is_tried(monkeypatch):
    tried = []

    class Silent(transports.WebSocketTransport):
        async def open(self):
            tried.append(self.name)
            await asyncio.get_running_loop().create_future()

    class Works(transports.PollTransport):
        async def open(self):
            tried.append(self.name)
            return FakeServer().welcome({})

        async def receive(self):
            await asyncio.get_running_loop().create_future()

    monkeypatch.setitem(transports.TRANSPORTS, "websocket", Silent)
    monkeypatch.setitem(transports.TRANSPORTS, "poll", Works)
    tavern = Tavern("http://127.0.0.1:9", user="ann", transports=["websocket", "poll"], connect_timeout=0.02)
    failed = tavern.stream("error")
    await tavern.connect()
    assert tried == ["websocket", "websocket", "poll"] and tavern.transport == "poll"
    assert "no hello within 0.02 s" in (await failed.next(1)).message
    await tavern.suspend()


@async_test
async def test_a_server_that_hangs_is_left_for_the_next_one():
    hanging = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{hanging.sockets[0].getsockname()[1]}"
    async with FakeServer() as server, Tavern([url, server.url], user="ann", transports=["websocket"], connect_timeout=0.1) as tavern:
        assert tavern.state == "open"
    hanging.close()


@async_test
async def test_a_stand_in_is_left_for_the_preferred_transport(monkeypatch):
    monkeypatch.setattr(session, "STAND_IN_S", 0.05)
    opened = []

    def opens(base, works):
        class Scripted(base):
            async def open(self):
                if not works(len(opened)):
                    raise transports.LinkRefused("not now")
                opened.append(self.name)
                return FakeServer().welcome({"session": "secret"})

            async def receive(self):
                # The first connection is lost at once.
                if len(opened) > 1:
                    await asyncio.get_running_loop().create_future()
                raise transports.LinkLost("lost")

        return Scripted

    monkeypatch.setitem(transports.TRANSPORTS, "websocket", opens(transports.WebSocketTransport, lambda count: count != 1))
    monkeypatch.setitem(transports.TRANSPORTS, "poll", opens(transports.PollTransport, lambda _: True))
    tavern = Tavern("http://127.0.0.1:9", user="ann", transports=["websocket", "poll"])
    tavern._session.settings.backoff.rand = lambda: 0.0
    await tavern.connect()
    await eventually(lambda: len(opened) == 3)
    assert opened == ["websocket", "poll", "websocket"]
    await tavern.suspend()


@async_test
async def test_what_is_closed_connects_again_and_restores():
    async with FakeServer() as server:
        tavern = Tavern(server.url, user="ann")
        await tavern.connect()
        await tavern.channel("game#1").subscribe()
        resets = tavern.stream("reset")
        await (await server.connection(1)).close(4000)
        await eventually(lambda: tavern.state == "closed")
        await tavern.connect()
        again = await server.connection(2)
        assert "session" not in again.hello, "the session is new"
        await server.until(lambda: again.ops() == ["subscribe"])
        # Those from before the end ended with it.
        with pytest.raises(TavernError, match="superseded"):
            await resets.next(1)
        await tavern.close()


@async_test
async def test_a_reset_names_what_was_not_restored():
    async with FakeServer(hello=lambda number, asked: {"ok": server.welcome(asked, resumed=False)}) as server, Tavern(server.url, user="ann") as tavern:
        for name in ("game#1", "game#2"):
            await tavern.channel(name).join(1)
        refused = {"error": {"code": "not_allowed", "message": "no more"}}
        server.replies["join"] = lambda command: refused if command["channel"] == "game#2" else {"ok": {}}
        resets = tavern.stream("reset")
        await (await server.connection(1)).close(1012)
        (failed,) = (await resets.next(5))["failed"]
        assert (failed["verb"], failed["channel"], failed["error"].code) == ("join", "game#2", "not_allowed")


@async_test
async def test_what_is_logged_has_no_secrets(caplog):
    caplog.set_level(logging.DEBUG, "tavern_client")
    async with FakeServer(hello=lambda number, asked: {"ok": server.welcome(asked, session="secret-session")}) as server:
        async with Tavern(server.url, token="secret-token") as tavern:
            await tavern.channel("game#1").publish("grüß dich")
    for shown in ("state open", "dial websocket", "grüß dich", '"op": "publish"'):
        assert shown in caplog.text, shown
    assert "secret" not in caplog.text


@async_test
async def test_a_server_that_does_not_answer_is_a_warning_once(caplog):
    tavern = Tavern("http://127.0.0.1:9", user="ann")
    tavern._session.settings.backoff.rand = lambda: 0.1
    with pytest.raises(TavernError, match="cannot reach 127.0.0.1:9"):
        await tavern.connect(0.5)
    (warned,) = [record for record in caplog.records if record.name == "tavern_client"]
    assert warned.levelname == "WARNING" and "cannot reach 127.0.0.1:9" in warned.message and "keeps trying" in warned.message


def test_what_does_not_exist_is_refused():
    tavern = Tavern("http://h", user="ann")
    for emitter in (tavern, tavern.me, tavern.channel("game#1"), tavern.pattern("game#*"), tavern.channel("game#1")._presence):
        with pytest.raises(ValueError, match="no event 'mesage'; choose from .*"):
            emitter.on("mesage", print)
        with pytest.raises(ValueError, match="no event"):
            emitter.stream("mesage")
    with pytest.raises(TypeError, match="unknown options usr; choose from .*user"):
        Tavern("http://h", usr="ann")
