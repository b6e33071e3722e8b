"""The schedule is the same for the same seed and stays inside its time; lines do what they are told."""
import asyncio

from torture import report
from torture.checks import Verdict
from torture.proxy import Proxy
from torture.run import Result
from torture.schedule import kinds, schedule

NODES, ENGINES = ["n1", "n2", "n3"], ["nats", "postgres"]


def test_one_seed_is_one_schedule():
    make = lambda seed: schedule(seed, 300, NODES, ENGINES, True)
    assert make(1) == make(1) and make(1) != make(2)


def test_every_kind_comes_and_ends_in_time():
    faults = schedule(7, 300, NODES, ENGINES, True)
    assert {fault.kind for fault in faults} == set(kinds(ENGINES, True))
    assert all(fault.at + fault.seconds <= 300 for fault in faults)


def test_what_is_not_possible_does_not_come():
    assert not {fault.kind for fault in schedule(7, 300, NODES, [], False)} & {"disk full", "engine kill", "line cut"}


async def echo(reader, writer):
    while piece := await reader.read(100):
        writer.write(piece)


def test_a_line_carries_is_cut_and_goes_silent():
    async def scene():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        proxy = await Proxy(server.sockets[0].getsockname()[1]).start()

        async def say(text):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(text)
            return reader, writer

        reader, writer = await say(b"one")
        assert await reader.read(3) == b"one"
        proxy.turn("hole")
        writer.write(b"two")
        silent = asyncio.create_task(reader.read(3))
        assert not (await asyncio.wait([silent], timeout=0.2))[0]
        proxy.turn("pass")
        writer.write(b"!")
        assert await asyncio.wait_for(silent, 5)
        proxy.turn("cut")
        try:
            assert await reader.read(100) in (b"!", b"wo!", b"")
        except ConnectionResetError:
            pass
        try:
            refused, _ = await say(b"three")
            assert await refused.read(5) == b""
        except OSError:
            pass
        proxy.turn("delay", 0.05)
        reader, writer = await say(b"four")
        assert await asyncio.wait_for(reader.read(4), 5) == b"four"
        await proxy.stop()
        server.close()

    asyncio.run(scene())


def test_a_report_keeps_the_tables_of_the_others(tmp_path):
    path = tmp_path / "TORTURE.md"
    result = lambda name, violations: Result(name, 7, 60, {"node kill": 3}, [], {"publish": 1000},
                                             [Verdict("a promise", 5, ["x"] * violations, {"announced": 2})], 4.5, [])
    report.write(path, [result("sqlite+local", 0), result("postgres+nats", 1)])
    report.write(path, [result("postgres+nats", 0)])
    text = path.read_text()
    assert text.count("**No violations.**") == 2 and text.count("## ") == 2
    assert "--combination postgres+nats --seconds 60 --seed 7" in text
