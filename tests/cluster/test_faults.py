"""Servers that die, stop, sleep and come back: the others go on, nothing stays behind, a loss is told."""
import json
import os
import signal

import pytest

from cluster.combination import FOLDER
from support import tokens
from support.json_client import Socket
from support.process import until
from support.resp import CLOSED, RespConnection, pack


def stat(server):
    done = server.run("local", "stat", "--data", server.data, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def redis_listener(server, name):
    redis = RespConnection(server.resp_port)
    redis.call("SUBSCRIBE", name)
    return redis


def until_gap(socket):
    while (event := socket.event())["event"] != "gap":
        pass
    return event


on_the_folder = pytest.mark.only(FOLDER, reason="about the log and the files of the local bus")


@pytest.fixture
def pair(combination):
    with combination.cluster(2) as servers:
        yield servers


def test_a_killed_server_leaves_nothing_and_harms_nobody(combination, channel):
    with combination.place() as place, place.server() as a, place.server() as b:
        listener = redis_listener(a, channel)
        lost = redis_listener(b, channel)
        speaker = RespConnection(a.resp_port)
        speaker.call("PUBLISH", channel, "both")
        assert lost.read()[2] == b"both"
        assert listener.read()[2] == b"both"
        os.kill(b.process.pid, signal.SIGKILL)
        b.process.wait()
        assert speaker.call("PUBLISH", channel, "after") == 1
        assert listener.read()[2] == b"after"
        if combination.bus == "local":
            only_a = lambda: [process["pid"] for process in stat(a)["processes"]] == [a.process.pid]
            until(only_a, "the dead one to be gone")
            assert not [name for name in os.listdir(a.data) if name.startswith("bus.db-wake")][1:]
        with place.server() as again:
            back = redis_listener(again, channel)
            speaker.call("PUBLISH", channel, "welcome")
            assert back.read()[2] == b"welcome" and listener.read()[2] == b"welcome"


def test_a_server_that_slept_hears_everything_when_it_wakes(combination, pair, channel):
    a, b = pair
    listener = redis_listener(b, channel)
    speaker = RespConnection(a.resp_port)
    speaker.call("PUBLISH", channel, 0)
    assert listener.read()[2] == b"0"
    os.kill(b.process.pid, signal.SIGSTOP)
    try:
        for n in range(1, 500):
            speaker.call("PUBLISH", channel, n)
        if combination.bus == "local":
            assert [process["alive"] for process in stat(a)["processes"]] == [True, True], "asleep is not dead"
    finally:
        os.kill(b.process.pid, signal.SIGCONT)
    assert [int(listener.read()[2]) for _ in range(1, 500)] == list(range(1, 500))


@on_the_folder
def test_a_server_that_slept_too_long_tells_its_listeners(combination, channel):
    with combination.cluster(2, "[local]\nlog_messages = 100\n") as (a, b):
        with Socket(b, user="ann") as ann, Socket(b, user="eve") as eve:
            ann.ok("subscribe", channel=channel)
            eve.ok("subscribe", pattern="room#*")
            redis = redis_listener(b, channel)
            speaker = RespConnection(a.resp_port)
            speaker.call("PUBLISH", channel, 0)
            assert redis.read()[2] == b"0" and ann.event()["data"] == 0 and eve.event()["data"] == 0
            os.kill(b.process.pid, signal.SIGSTOP)
            try:
                for n in range(1, 1001):
                    speaker.call("PUBLISH", channel, n)
                until(lambda: a.metric("tavern_bus_sent_total") >= 1001, "all of them to be carried")
                assert stat(a)["log_messages"] <= 100 + 512
            finally:
                os.kill(b.process.pid, signal.SIGCONT)
            # A signal takes its time: the first few may still have been heard.
            assert until_gap(ann)["channel"] == channel
            assert until_gap(eve)["pattern"] == "room#*"
            numbers = []
            while not numbers or numbers[-1] < 1000:
                numbers.append(ann.event()["data"])
            assert numbers == list(range(numbers[0], 1001)) and numbers[0] > 1, "after the gap nothing is missing"
            until(lambda: CLOSED in redis.frames_so_far(), "the Redis connection to be closed: it cannot be told of a gap")
            assert b.metric("tavern_bus_losses_total") == 1


@on_the_folder
def test_a_stopped_server_leaves_only_the_files_of_the_store_and_the_bus(combination, channel):
    with combination.cluster(2) as (a, b):
        listeners = [redis_listener(a, channel), redis_listener(b, channel)]
        RespConnection(b.resp_port).call("PUBLISH", channel, "x")
        assert [listener.read()[2] for listener in listeners] == [b"x", b"x"]
        assert a.terminate() == 0 and b.terminate() == 0
        left = sorted(os.listdir(a.data))
        assert left == ["bus.db", "bus.db-lock", "dev-key", "tavern.db", "tavern.lock"] or \
            left == ["bus.db", "bus.db-lock", "tavern.db", "tavern.lock"], left
        shown = stat(a)
        assert shown["processes"] == [] and shown["log_messages"] == 0


def test_sessions_taken_up_after_a_restart_hear_the_others(pair, channel):
    a, b = pair
    with Socket(b, user="ann") as ann:
        ann.ok("subscribe", channel=channel)
        session = ann.hello["session"]
        ann.drop()
    assert b.terminate() == 0
    b.start()
    until(lambda: RespConnection(a.resp_port).call("PUBLISH", channel, "anew") is not None, "a speaks")
    with Socket(b, greet=False) as ann:
        reply = ann.call("hello", session=session, seq=0, token=tokens.token("ann"))
        assert reply["ok"]["resumed"] is True, reply
        RespConnection(a.resp_port).call("PUBLISH", channel, "again")
        assert "again" in [ann.event()["data"], ann.event()["data"]]


@on_the_folder
def test_a_server_alone_writes_nothing_for_its_messages(combination, channel):
    with combination.cluster(1) as (alone,):
        listener = redis_listener(alone, channel)
        files = [alone.data / name for name in ("bus.db", "bus.db-wal")]
        before = [(file.stat().st_mtime_ns, file.stat().st_size) for file in files]
        speaker = RespConnection(alone.resp_port)
        for _ in range(20):
            speaker.send(pack("PUBLISH", channel, "x") * 100)
            for _ in range(100):
                assert speaker.read() == 1
        more = [redis_listener(alone, f"{channel}-{n}") for n in range(50)]
        assert len(more) == 50
        assert [(file.stat().st_mtime_ns, file.stat().st_size) for file in files] == before
        assert alone.metric("tavern_bus_sent_total") == 0
        assert listener.read()[2] == b"x"


@on_the_folder
def test_a_server_without_listeners_gets_none_of_the_traffic(pair, channel):
    a, b = pair
    listener = redis_listener(a, channel)
    other = redis_listener(b, channel + "-other")
    speaker = RespConnection(a.resp_port)
    RespConnection(b.resp_port).call("PUBLISH", channel, "first")
    assert listener.read()[2] == b"first"
    RespConnection(a.resp_port).call("PUBLISH", channel + "-other", "first")
    until(lambda: b.metric("tavern_bus_received_total") == 1, "the two know each other")
    sent = a.metric("tavern_bus_sent_total")
    for n in range(500):
        speaker.call("PUBLISH", channel, n)
    assert b.metric("tavern_bus_received_total") == 1
    assert a.metric("tavern_bus_sent_total") < sent + 20, "what nobody else hears is not even written"
    assert other.read()[2] == b"first" and other.frames_so_far() == []
