"""Channel history on every combination of engines: one order on all nodes, recovery on another node, after kill -9 of a node
and of the store."""
import json
import threading

import pytest

from support.json_client import Poller, Socket
from support.process import until
from support.resp import RespConnection, pack

CONFIG = """
[kinds.chat]
history_messages = 500
[limits]
mailbox_events = 40
"""


@pytest.fixture
def chat(channel):
    return channel.replace("room#", "chat#")


@pytest.fixture
def pair(combination):
    with combination.cluster(2, CONFIG) as servers:
        yield servers


def position(reply):
    return {"epoch": reply["epoch"], "offset": reply["offset"]}


def take(socket, count):
    return [socket.event() for _ in range(count)]


def test_every_node_delivers_one_order(pair, chat):
    a, b = pair
    with Socket(a, user="ann") as ann, Socket(b, user="bob") as bob, Socket(b, user="cid") as cid:
        ann.ok("subscribe", channel=chat)
        bob.ok("subscribe", channel=chat)

        def publish(server, name):
            with Socket(server, user=name) as socket:
                for n in range(40):
                    socket.ok("publish", channel=chat, data=f"{name} {n}")

        redis = RespConnection(a.resp_port)
        publishers = [threading.Thread(target=publish, args=each) for each in ((a, "p1"), (b, "p2"))]
        for publisher in publishers:
            publisher.start()
        redis.send(b"".join(pack("PUBLISH", chat, json.dumps(f"r {n}")) for n in range(40)))
        replies = [redis.read() for _ in range(40)]
        for publisher in publishers:
            publisher.join()
        assert all(isinstance(reply, int) for reply in replies)
        first, second = take(ann, 120), take(bob, 120)
        assert [event["offset"] for event in first] == [event["offset"] for event in second] == list(range(1, 121))
        data = [event["data"] for event in first]
        assert data == [event["data"] for event in second]
        for name in ("p1", "p2", "r"):
            assert [text for text in data if text.startswith(f"{name} ")] == [f"{name} {n}" for n in range(40)]
        cid.ok("subscribe", channel=chat, last=120)
        assert [event["data"] for event in take(cid, 120)] == data


def test_a_client_recovers_on_another_node_after_kill_9(combination, chat):
    with combination.settings() as settings, settings.server(CONFIG) as a, settings.server(CONFIG) as b:
        with Socket(b, user="ann") as ann:
            bob = Socket(a, user="bob")
            bob.ok("subscribe", channel=chat)
            ann.ok("publish", channel=chat, data=1)
            got = bob.event()
            a.kill()
            for n in range(2, 100):
                ann.ok("publish", channel=chat, data=n)
            with Socket(b, user="bob") as bob:
                reply = bob.ok("subscribe", channel=chat, since=position(got))
                assert reply == position(got) | {"recovered": True}
                assert [event["data"] for event in take(bob, 98)] == list(range(2, 100))
                assert bob.events_so_far() == []


def test_a_session_that_moves_misses_nothing(pair, chat):
    a, b = pair
    bob = Socket(a, user="bob-moves")
    session = bob.hello["session"]
    bob.ok("subscribe", channel=chat)
    with Socket(b, user="ann") as ann:
        ann.ok("publish", channel=chat, data=0)
        seq = bob.event()["seq"]
        bob.drop()
        for n in range(1, 90):
            ann.ok("publish", channel=chat, data=n)
        with Poller(b, user="bob-moves", session=session, cursor=seq) as poller:
            data = []
            while len(data) < 89:
                events = poller.take()
                assert events and all(event["event"] == "message" for event in events), (data, events)
                data += [event["data"] for event in events]
        assert data == list(range(1, 90))


def test_a_message_id_is_published_once_on_all_nodes(pair, chat):
    a, b = pair
    with Socket(a, user="ann") as ann, Socket(b, user="ann") as elsewhere, Socket(b, user="bob") as bob:
        bob.ok("subscribe", channel=chat)
        first = ann.ok("publish", channel=chat, data=1, message_id="m")
        again = elsewhere.ok("publish", channel=chat, data=1, message_id="m")
        assert again["duplicate"] is True and position(again) == position(first)
        assert "duplicate" not in bob.ok("publish", channel=chat, data=2, message_id="m"), "another author"
        ann.ok("publish", channel=chat, data=3)
        assert [event["data"] for event in take(bob, 3)] == [1, 2, 3]


def test_a_cleared_history_begins_in_another_epoch_on_all_nodes(pair, chat):
    a, b = pair
    with Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
        bob.ok("subscribe", channel=chat)
        first = ann.ok("publish", channel=chat, data=1)
        # What has not arrived when the history is cleared is deleted, too.
        assert bob.event()["data"] == 1
        done = a.run("history", chat, "--clear", "--url", a.url, "--key", a.key)
        assert done.returncode == 0, done.stderr
        second = ann.ok("publish", channel=chat, data=2)
        assert second["offset"] == 1 and second["epoch"] > first["epoch"]
        assert bob.event()["data"] == 2
        assert bob.ok("subscribe", channel=chat, since=position(first))["recovered"] is False


def test_a_retained_message_reaches_newcomers_on_all_nodes(pair, channel):
    a, b = pair
    with Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
        for value in ("old", "new"):
            assert "offset" not in ann.ok("publish", channel=channel, data=value, retain=True)
        ann.ok("publish", channel=channel, data="not kept")
        # What arrives on the other node after the message shows that it has arrived too.
        bob.ok("subscribe", channel=f"{channel}-marker")
        ann.ok("publish", channel=f"{channel}-marker", data="marker")
        assert bob.event()["data"] == "marker"
        bob.ok("subscribe", channel=channel, last=1)
        event = bob.event()
        assert event["data"] == "new" and "offset" not in event
        ann.ok("publish", channel=channel, data="live")
        assert bob.event()["data"] == "live"


@pytest.mark.only("postgres+nats", reason="the store is one server that can be killed alone")
def test_messages_acknowledged_before_the_store_crashed_are_recovered(combination, chat):
    store = combination.engines.server("postgres")
    with combination.cluster(1, CONFIG) as (server,), Socket(server, user="ann") as ann, Socket(server, user="bob") as bob:
        first = ann.ok("publish", channel=chat, data=1)
        for n in range(2, 20):
            ann.ok("publish", channel=chat, data=n)
        store.stop("immediate")
        assert ann.call("publish", channel=chat, data="lost?")["error"]["code"] == "unavailable"
        store.start()
        until(lambda: "ok" in ann.call("publish", channel=chat, data="after", message_id="after"), "the store to answer", 30)
        assert bob.ok("subscribe", channel=chat, since=position(first))["recovered"] is True
        data = []
        while not data or data[-1] != "after":
            data.append(bob.event()["data"])
        assert data[:18] == list(range(2, 20)) and data.count("after") == 1
