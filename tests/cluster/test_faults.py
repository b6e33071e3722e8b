"""Servers that are killed, stopped or suspended: others continue, nothing is left behind, lost messages are reported."""
import json
import os
import re
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


on_the_folder = pytest.mark.only(FOLDER, reason="tests the log and the files of the local bus")


@pytest.fixture
def pair(combination):
    with combination.cluster(2) as servers:
        yield servers


def test_a_killed_server_leaves_nothing_behind_and_affects_no_other(combination, channel):
    with combination.settings() as settings, settings.server() as a, settings.server() as b:
        listener = redis_listener(a, channel)
        lost = redis_listener(b, channel)
        publisher = RespConnection(a.resp_port)
        publisher.call("PUBLISH", channel, "both")
        assert lost.read()[2] == b"both"
        assert listener.read()[2] == b"both"
        os.kill(b.process.pid, signal.SIGKILL)
        b.process.wait()
        assert publisher.call("PUBLISH", channel, "after") == 1
        assert listener.read()[2] == b"after"
        if combination.bus == "local":
            only_a = lambda: [process["pid"] for process in stat(a)["processes"]] == [a.process.pid]
            until(only_a, "the killed server to be removed")
            assert not [name for name in os.listdir(a.data) if name.startswith("bus.db-wake")][1:]
        with settings.server() as again:
            back = redis_listener(again, channel)
            publisher.call("PUBLISH", channel, "welcome")
            assert back.read()[2] == b"welcome" and listener.read()[2] == b"welcome"


def test_a_suspended_server_delivers_everything_after_it_resumes(combination, pair, channel):
    a, b = pair
    listener = redis_listener(b, channel)
    publisher = RespConnection(a.resp_port)
    publisher.call("PUBLISH", channel, 0)
    assert listener.read()[2] == b"0"
    os.kill(b.process.pid, signal.SIGSTOP)
    try:
        for n in range(1, 500):
            publisher.call("PUBLISH", channel, n)
        if combination.bus == "local":
            assert [process["alive"] for process in stat(a)["processes"]] == [True, True], "a suspended process is alive"
    finally:
        os.kill(b.process.pid, signal.SIGCONT)
    assert [int(listener.read()[2]) for _ in range(1, 500)] == list(range(1, 500))


@on_the_folder
def test_a_server_suspended_too_long_reports_a_gap(combination, channel):
    with combination.cluster(2, "[local]\nlog_messages = 100\n") as (a, b):
        with Socket(b, user="ann") as ann, Socket(b, user="eve") as eve:
            ann.ok("subscribe", channel=channel)
            eve.ok("subscribe", pattern="room#*")
            redis = redis_listener(b, channel)
            publisher = RespConnection(a.resp_port)
            publisher.call("PUBLISH", channel, 0)
            assert redis.read()[2] == b"0" and ann.event()["data"] == 0 and eve.event()["data"] == 0
            os.kill(b.process.pid, signal.SIGSTOP)
            try:
                for n in range(1, 1001):
                    publisher.call("PUBLISH", channel, n)
                until(lambda: a.metric("tavern_bus_sent_total") >= 1001, "all messages to be sent")
                assert stat(a)["log_messages"] <= 100 + 512
            finally:
                os.kill(b.process.pid, signal.SIGCONT)
            # SIGSTOP takes effect late: the first few messages may still have been received.
            assert until_gap(ann)["channel"] == channel
            assert until_gap(eve)["pattern"] == "room#*"
            numbers = []
            while not numbers or numbers[-1] < 1000:
                event = ann.event()
                # A slow reader may fall behind once more.
                numbers = [] if event["event"] == "gap" else [*numbers, event["data"]]
            assert numbers == list(range(numbers[0], 1001)) and numbers[0] > 1, "no message is missing after the gap"
            until(lambda: CLOSED in redis.frames_so_far(), "the Redis connection to be closed, because RESP has no gap event")
            assert b.metric("tavern_bus_losses_total") >= 1


@on_the_folder
def test_a_stopped_server_leaves_only_the_files_of_store_and_bus(combination, channel):
    with combination.cluster(2) as (a, b):
        listeners = [redis_listener(a, channel), redis_listener(b, channel)]
        RespConnection(b.resp_port).call("PUBLISH", channel, "x")
        assert [listener.read()[2] for listener in listeners] == [b"x", b"x"]
        assert a.terminate() == 0 and b.terminate() == 0
        left = set(os.listdir(a.data))
        names = {name for name in left if re.fullmatch(r"node-.+\.lock", name)}
        assert len(names) == 2, "the names of both servers, for the next start"
        assert left - names - {"dev-key", "dev-pusher-secret"} == {"bus.db", "bus.db-lock", "tavern.db", "tavern.lock"}, left
        shown = stat(a)
        assert shown["processes"] == [] and shown["log_messages"] == 0


def test_adopted_sessions_receive_messages_of_other_servers(pair, channel):
    a, b = pair
    with Socket(b, user="ann") as ann:
        ann.ok("subscribe", channel=channel)
        session = ann.hello["session"]
        ann.drop()
    assert b.terminate() == 0
    b.start()
    until(lambda: RespConnection(a.resp_port).call("PUBLISH", channel, "after restart") is not None, "server a to publish")
    with Socket(b, greet=False) as ann:
        reply = ann.call("hello", session=session, seq=0, token=tokens.token("ann"))
        assert reply["ok"]["resumed"] is True, reply
        RespConnection(a.resp_port).call("PUBLISH", channel, "again")
        assert "again" in [ann.event()["data"], ann.event()["data"]]


@on_the_folder
def test_a_single_server_writes_no_messages_to_disk(combination, channel):
    with combination.cluster(1) as (alone,):
        listener = redis_listener(alone, channel)
        files = [alone.data / name for name in ("bus.db", "bus.db-wal")]
        before = [(file.stat().st_mtime_ns, file.stat().st_size) for file in files]
        publisher = RespConnection(alone.resp_port)
        for _ in range(20):
            publisher.send(pack("PUBLISH", channel, "x") * 100)
            for _ in range(100):
                assert publisher.read() == 1
        more = [redis_listener(alone, f"{channel}-{n}") for n in range(50)]
        assert len(more) == 50
        assert [(file.stat().st_mtime_ns, file.stat().st_size) for file in files] == before
        assert alone.metric("tavern_bus_sent_total") == 0
        assert listener.read()[2] == b"x"


@on_the_folder
def test_a_server_without_subscribers_gets_no_messages(pair, channel):
    a, b = pair
    listener = redis_listener(a, channel)
    other = redis_listener(b, channel + "-other")
    publisher = RespConnection(a.resp_port)
    RespConnection(b.resp_port).call("PUBLISH", channel, "first")
    assert listener.read()[2] == b"first"
    publisher.call("PUBLISH", channel + "-other", "first")
    assert other.read()[2] == b"first"
    sent, received = a.metric("tavern_bus_sent_total"), b.metric("tavern_bus_received_total")
    for n in range(500):
        publisher.call("PUBLISH", channel, n)
    # It comes after all of them.
    publisher.call("PUBLISH", channel + "-other", "last")
    assert other.read()[2] == b"last"
    # Servers also tell each other about themselves, and more of it the longer this takes.
    assert b.metric("tavern_bus_received_total") < received + 400
    assert a.metric("tavern_bus_sent_total") < sent + 400, "messages without remote subscribers are not sent"
