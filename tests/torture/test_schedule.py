"""Schedules are deterministic and end in time; proxies apply their modes; reports keep other tables."""
import asyncio

from judge.verdict import Verdict
from torture import report
from torture.proxy import Proxy
from torture.run import Result
from torture.schedule import kinds, schedule

NODES, ENGINES = ["n1", "n2", "n3"], ["nats", "postgres"]


def test_equal_seeds_give_equal_schedules():
    make = lambda seed: schedule(seed, 300, NODES, ENGINES, True)
    assert make(1) == make(1) and make(1) != make(2)


def test_every_kind_occurs_and_ends_in_time():
    faults = schedule(7, 300, NODES, ENGINES, True)
    assert {fault.kind for fault in faults} == set(kinds(ENGINES, True))
    assert all(fault.at + fault.seconds <= 300 for fault in faults)


def test_impossible_kinds_do_not_occur():
    assert not {fault.kind for fault in schedule(7, 300, NODES, [], False)} & {"disk full", "engine kill", "line cut"}


async def echo(reader, writer):
    while piece := await reader.read(100):
        writer.write(piece)


def test_a_proxy_forwards_cuts_and_blackholes():
    async def exercise():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        proxy = await Proxy(server.sockets[0].getsockname()[1]).start()

        async def send(text):
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(text)
            return reader, writer

        reader, writer = await send(b"one")
        assert await reader.read(3) == b"one"
        proxy.set_mode("hole")
        writer.write(b"two")
        silent = asyncio.create_task(reader.read(3))
        assert not (await asyncio.wait([silent], timeout=0.2))[0]
        proxy.set_mode("pass")
        writer.write(b"!")
        assert await asyncio.wait_for(silent, 5)
        proxy.set_mode("cut")
        try:
            assert await reader.read(100) in (b"!", b"wo!", b"")
        except ConnectionResetError:
            pass
        try:
            refused, _ = await send(b"three")
            assert await refused.read(5) == b""
        except OSError:
            pass
        proxy.set_mode("delay", 0.05)
        reader, writer = await send(b"four")
        assert await asyncio.wait_for(reader.read(4), 5) == b"four"
        await proxy.stop()
        server.close()

    asyncio.run(exercise())


def test_a_report_keeps_the_tables_of_other_combinations(tmp_path):
    path = tmp_path / "TORTURE.md"
    result = lambda name, violations: Result(name, 7, 60, {"node kill": 3}, [], {"publish": 1000},
                                             [Verdict("a guarantee", 5, ["x"] * violations, {"announced": 2})], 4.5, [])
    report.write(path, [result("sqlite+local", 0), result("postgres+nats", 1)])
    report.write(path, [result("postgres+nats", 0)])
    text = path.read_text()
    assert text.count("**No violations.**") == 2 and text.count("## ") == 2
    assert "--combination postgres+nats --seconds 60 --seed 7" in text
