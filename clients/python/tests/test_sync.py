"""The blocking client."""
import asyncio
import pathlib
import sys
import threading

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from fake_server import FakeServer  # noqa: E402
from tavern_client.errors import TavernError  # noqa: E402
from tavern_client.sync import Loop, Tavern  # noqa: E402


@pytest.fixture
def server():
    """The scripted server in its own thread."""
    loop = Loop()

    async def begin():
        return await FakeServer().__aenter__()

    served = loop.run(begin())
    served.run = loop.run
    yield served
    loop.run(served.__aexit__())
    loop.stop()


def test_calls_block_and_iterators_block_with_a_timeout(server):
    threads = threading.active_count()
    server.replies["publish"] = {"ok": {"receivers": 2}}
    with Tavern(server.url, user="ann") as tavern:
        channel = tavern.channel("game#1")
        with channel.messages(timeout=0.1) as messages:
            channel.subscribe()
            assert channel.publish(1).receivers == 2
            with pytest.raises(TimeoutError):
                next(messages)
            connection = server.run(server.connection(1))
            server.run(connection.message(1, "x"))
            assert messages.next(timeout=5).data == "x"
        assert tavern.me.user == "ann" and tavern.state == "open" and tavern.party.current is None
        rest = channel.messages()
    assert list(rest) == [], "closing the client ends its iterators"
    assert threading.active_count() == threads
    with pytest.raises(TavernError, match="closed"):
        channel.publish(1)


def test_error_replies_are_raised(server):
    server.replies["party.invite"] = {"error": {"code": "party_full", "message": "no", "party": {"party_id": 4, "version": 1}}}
    with Tavern(server.url, user="ann") as tavern, pytest.raises(TavernError) as refused:
        tavern.party.invite("bob")
    assert refused.value.code == "party_full" and refused.value.party["party_id"] == 4
    with Tavern(server.url, user="ann") as tavern, pytest.raises(AttributeError):
        tavern.party.invent("bob")


def test_calling_the_client_from_a_listener_raises_an_explanation(server):
    failures = []
    with Tavern(server.url, user="ann") as tavern:
        channel, received = tavern.channel("game#1"), threading.Event()

        def answer(message):
            try:
                channel.publish(2)
            except TavernError as failure:
                failures.append(failure.message)
            received.set()

        channel.subscribe(answer)
        connection = server.run(server.connection(1))
        server.run(connection.message(1, "x"))
        assert received.wait(5) and "listener" in failures[0]


def test_the_client_works_inside_a_running_event_loop(server):
    async def main():
        with Tavern(server.url, user="ann") as tavern:
            return tavern.state

    assert asyncio.run(main()) == "open"
