"""The client without asyncio."""
import asyncio
import pathlib
import sys
import threading

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from house import House  # noqa: E402
from tavern_client.errors import TavernError  # noqa: E402
from tavern_client.sync import Loop, Tavern  # noqa: E402


@pytest.fixture
def house():
    """The server with a script, in a thread of its own."""
    loop = Loop()

    async def begin():
        return await House().__aenter__()

    served = loop.run(begin())
    served.run = loop.run
    yield served
    loop.run(served.__aexit__())
    loop.stop()


def test_calls_block_and_iterators_block_with_a_time(house):
    threads = threading.active_count()
    house.replies["publish"] = {"ok": {"receivers": 2}}
    with Tavern(house.url, user="ann") as tavern:
        channel = tavern.channel("game#1")
        with channel.messages(timeout=0.1) as messages:
            channel.subscribe()
            assert channel.publish(1) == 2
            with pytest.raises(TimeoutError):
                next(messages)
            line = house.run(house.line(1))
            house.run(line.message(1, "x"))
            assert messages.next(timeout=5).data == "x"
        assert tavern.me.user == "ann" and tavern.state == "open" and tavern.party.current is None
        rest = channel.messages()
    assert list(rest) == [], "the end of the client is the end of its iterators"
    assert threading.active_count() == threads
    with pytest.raises(TavernError, match="closed"):
        channel.publish(1)


def test_refusals_are_raised_here(house):
    house.replies["party.invite"] = {"error": {"code": "party_full", "message": "no", "party": {"party_id": 4, "version": 1}}}
    with Tavern(house.url, user="ann") as tavern, pytest.raises(TavernError) as refused:
        tavern.party.invite("bob")
    assert refused.value.code == "party_full" and refused.value.party["party_id"] == 4
    with Tavern(house.url, user="ann") as tavern, pytest.raises(AttributeError):
        tavern.party.invent("bob")


def test_a_listener_that_calls_the_client_is_told_why_it_cannot(house):
    failures = []
    with Tavern(house.url, user="ann") as tavern:
        channel, heard = tavern.channel("game#1"), threading.Event()

        def answer(message):
            try:
                channel.publish(2)
            except TavernError as failure:
                failures.append(failure.message)
            heard.set()

        channel.subscribe(answer)
        line = house.run(house.line(1))
        house.run(line.message(1, "x"))
        assert heard.wait(5) and "listener" in failures[0]


def test_it_can_be_used_while_a_loop_runs_in_this_thread(house):
    async def main():
        with Tavern(house.url, user="ann") as tavern:
            return tavern.state

    assert asyncio.run(main()) == "open"
