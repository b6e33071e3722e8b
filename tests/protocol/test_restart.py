"""Restarts: what a clean stop puts away is there again afterwards, on the same folder, whatever the number of threads."""
import collections
import json
import signal
import threading

import httpx
import pytest

from support.json_client import Poller, Socket, Stream
from support.process import until
from support.resp import CLOSED, RespConnection, pack
from support.tavern import Tavern


def config(threads):
    return f"threads = {threads}\n"


@pytest.fixture
def server():
    with Tavern.dev(config(2)) as server:
        yield server


def stop(server):
    server.process.send_signal(signal.SIGTERM)


def start_again(server, threads=None):
    assert server.process.wait(15) == 0
    server.kill()
    if threads:
        server.config.write_text(config(threads))
    server.start()


def publish(server, *words):
    """Each word is (channel, data); returns the numbers of receivers."""
    connection = RespConnection(server.resp_port)
    connection.send(b"".join(pack("PUBLISH", channel, json.dumps(data)) for channel, data in words))
    receivers = [connection.read() for _ in words]
    connection.close()
    return receivers


def test_a_websocket_session_goes_on(server):
    socket = Socket(server, user="ann")
    hello = socket.hello
    socket.ok("subscribe", channel="game#1")
    socket.ok("subscribe", pattern="chat#*")
    assert publish(server, *[("game#1", n) for n in range(1, 6)], ("chat#x", 6)) == [1] * 6
    read = [socket.event() for _ in range(6)]
    assert [event["seq"] for event in read] == [1, 2, 3, 4, 5, 6]
    stop(server)
    frames, code = socket.closing()
    assert code == 4502
    assert frames[-1]["event"] == "closing" and 0 <= frames[-1]["reconnect_after_ms"] <= 5000
    start_again(server)

    # It says that it got to 3: the rest counts as unread, whatever was sent.
    back = Socket(server, user="ann")
    resumed = back.ok("hello", session=hello["session"], seq=3)
    assert resumed["resumed"] is True and "reset" not in resumed
    assert (resumed["client"], resumed["user"], resumed["seq"]) == (hello["client"], "ann", 6)
    assert resumed["session"] == hello["session"]
    assert resumed["epoch"] != hello["epoch"], "another process"
    events = [back.event() for _ in range(3)]
    assert [(event["seq"], event["channel"], event["data"]) for event in events] == [
        (4, "game#1", 4), (5, "game#1", 5), (6, "chat#x", 6),
    ]
    assert events == read[3:], "told in the same words"
    assert publish(server, ("game#1", 7), ("chat#y", 8), ("game#2", "no")) == [1, 1, 0]
    assert [(e["seq"], e["data"]) for e in (back.event(), back.event())] == [(7, 7), (8, 8)]
    back.ok("unsubscribe", pattern="chat#*")
    assert publish(server, ("chat#x", "no"), ("game#1", 9)) == [0, 1]
    assert back.event()["data"] == 9
    back.close()


def test_events_that_were_never_sent_go_on_too(server):
    socket = Socket(server, user="ann")
    socket.ok("subscribe", channel="game#1")
    session = socket.hello["session"]
    socket.drop()
    assert publish(server, *[("game#1", n) for n in range(100)]) == [1] * 100
    stop(server)
    start_again(server)
    with Socket(server, user="ann") as back:
        assert back.ok("hello", session=session, seq=0)["resumed"] is True
        assert [back.event()["data"] for _ in range(100)] == list(range(100))


def test_a_session_goes_on_by_its_address_too(server):
    """`?session=…&seq=…`: the hello is implicit."""
    socket = Socket(server, user="ann")
    socket.ok("subscribe", channel="game#1")
    hello = socket.hello
    publish(server, ("game#1", 1), ("game#1", 2))
    stop(server)
    assert socket.closing()[1] == 4502
    start_again(server)
    with Stream(server, session=hello["session"], seq=1) as stream:
        greeting = stream.greeting()
        assert (greeting["resumed"], greeting["client"]) == (True, hello["client"])
        assert stream.event()[1]["data"] == 2


def test_a_long_poll_session_goes_on(server):
    with Poller(server, user="bob") as poller:
        client = poller.ok("hello")["client"]
        poller.ok("subscribe", channel="game#1")
        poller.ok("subscribe", pattern="chat#*")
        publish(server, ("game#1", 1), ("chat#x", 2), ("game#1", 3))
        unconfirmed = poller.poll()
        assert [event["data"] for event in unconfirmed["events"]] == [1, 2, 3]
        poller.cursor = 1
        poller.poll(timeout_ms=0)
        waiting = []
        parked = threading.Thread(target=lambda: waiting.append(poller.poll_response(timeout_ms=20_000, cursor=3)), daemon=True)
        parked.start()
        with httpx.Client(headers={"authorization": f"Bearer {server.key}"}, trust_env=False) as operator:
            report = lambda: operator.get(f"{server.url}/v1/sessions/{client}").json()
            until(lambda: report()["transport"] == "poll", "the poll to park")
        stop(server)
        parked.join(6)
        assert waiting[0].status_code == 503 and waiting[0].json()["error"]["retry_after_ms"] >= 0
        start_again(server)
        # Cursor 3 confirmed all of it; one more word comes with the number after it.
        publish(server, ("chat#z", 4))
        answer = poller.poll(cursor=3)
        assert not answer.get("reset") and not answer.get("gap")
        assert [(event["seq"], event["data"]) for event in answer["events"]] == [(4, 4)]


def test_an_unconfirmed_poll_is_asked_for_again_after_the_restart(server):
    with Poller(server, user="bob") as poller:
        poller.ok("hello")
        poller.ok("subscribe", channel="game#1")
        publish(server, *[("game#1", n) for n in range(1, 6)])
        before = poller.poll(cursor=0)
        stop(server)
        start_again(server)
        again = poller.poll(cursor=0)
        assert again["events"] == before["events"] and again["session"] == before["session"]
        assert [event["seq"] for event in poller.poll(cursor=2, timeout_ms=0)["events"]] == [3, 4, 5]


def test_a_stream_session_goes_on(server):
    stream = Stream(server, user="cid")
    hello = stream.greeting()
    with Poller(server, user="cid", session=hello["session"]) as hand:
        hand.ok("subscribe", channel="game#1")
        hand.ok("subscribe", pattern="chat#*")
        publish(server, ("game#1", 1), ("chat#x", 2), ("game#1", 3))
        assert [stream.event()[0] for _ in range(3)] == [1, 2, 3]
        stop(server)
        number, closing = stream.event()
        assert number is None and closing["event"] == "closing"
        assert stream.event() is None, "the response ends"
        stream.close()
        start_again(server)
        # As a browser does it: the old address, and how far it got in a header.
        with Stream(server, user="cid", session=hello["session"], headers={"last-event-id": "1"}) as back:
            greeting = back.greeting()
            assert (greeting["resumed"], greeting["client"]) == (True, hello["client"])
            assert [(number, event["data"]) for number, event in (back.event(), back.event())] == [(2, 2), (3, 3)]
            publish(server, ("chat#y", 4))
            assert back.event()[1]["data"] == 4


def test_two_restarts_are_as_good_as_one(server):
    with Poller(server, user="bob") as poller:
        client = poller.ok("hello")["client"]
        poller.ok("subscribe", channel="game#1")
        for number in range(1, 4):
            assert publish(server, ("game#1", number)) == [1]
            stop(server)
            start_again(server)
        assert [event["data"] for event in poller.poll(cursor=0)["events"]] == [1, 2, 3]
        assert poller.ok("hello", seq=0)["client"] == client


def test_a_session_that_said_bye_does_not_come_back(server):
    socket = Socket(server, user="ann")
    session = socket.hello["session"]
    socket.ok("subscribe", channel="game#1")
    socket.close()
    stop(server)
    start_again(server)
    with Socket(server, user="ann") as back:
        assert back.ok("hello", session=session, seq=0)["resumed"] is False
    assert publish(server, ("game#1", 1)) == [0]


def test_somebody_else_cannot_take_a_session_after_a_restart(server):
    with Poller(server, user="bob") as poller:
        poller.ok("hello")
        stop(server)
        start_again(server)
        with Socket(server, user="mallory") as mallory:
            reply = mallory.call("hello", session=poller.session, seq=0)
            assert "error" in reply or reply["ok"]["resumed"] is False
        assert poller.ok("hello", seq=0)["resumed"] is True


def test_after_a_crash_sessions_are_new_and_the_server_is_well(server):
    socket = Socket(server, user="ann")
    socket.ok("subscribe", channel="game#1")
    session = socket.hello["session"]
    poller = Poller(server, user="bob")
    poller.ok("hello")
    server.process.kill()
    server.process.wait()
    server.kill()
    server.start()
    with Socket(server, user="ann") as back:
        hello = back.ok("hello", session=session, seq=0)
        assert hello["resumed"] is False and hello["session"] != session
        back.ok("subscribe", channel="game#1")
        assert publish(server, ("game#1", "on")) == [1]
        assert back.event()["data"] == "on"
    fresh = poller.poll(timeout_ms=0)
    assert fresh["reset"] is True and fresh["events"] == []
    poller.close()


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_two_hundred_sessions_go_on(before, after):
    with Tavern.dev(config(before)) as server:
        sockets = [Socket(server, user=f"ws-{n}") for n in range(50)]
        pollers = [Poller(server, user=f"poll-{n}") for n in range(150)]
        shared = pollers[0].http
        for poller in pollers[1:]:
            poller.http.close()
            poller.http = shared
        for socket in sockets:
            socket.ok("subscribe", channel="hall#1")
        for number, poller in enumerate(pollers):
            poller.ok("hello")
            poller.ok("subscribe", channel="hall#1")
            poller.ok("subscribe", channel=f"own#{number}")
        assert publish(server, *[("hall#1", n) for n in range(1, 4)]) == [200] * 3
        stop(server)
        for socket in sockets:
            frames, code = socket.closing()
            assert code == 4502 and frames[-1]["event"] == "closing"
            # A frame that was on its way is not lost: it is in the mailbox.
            assert [frame["data"] for frame in frames[:-1]] == [1, 2, 3]
        start_again(server, threads=after)
        assert publish(server, ("hall#1", 4), *[(f"own#{n}", n) for n in range(150)]) == [200] + [1] * 150
        for number, poller in enumerate(pollers):
            answer = poller.poll(cursor=1)
            assert [(e["seq"], e["data"]) for e in answer["events"]] == [(2, 2), (3, 3), (4, 4), (5, number)]
        for socket in sockets:
            with Socket(server, user=socket.hello["user"]) as back:
                hello = back.ok("hello", session=socket.hello["session"], seq=2)
                assert (hello["resumed"], hello["client"]) == (True, socket.hello["client"])
                assert [back.event()["data"] for _ in range(2)] == [3, 4]
        shared.close()


@pytest.mark.parametrize("threads", [1, 2])
def test_what_was_received_before_the_stop_is_not_lost_by_it(threads):
    """Publishers go on through the stop: a word that was counted for so many sessions is in so many mailboxes afterwards."""
    with Tavern.dev(config(threads)) as server:
        pollers = [Poller(server, user=f"bob-{n}") for n in range(6)]
        for poller in pollers:
            poller.ok("hello")
            poller.ok("subscribe", channel="game#1")
        counted = {}

        def speak(name, connection):
            for number in range(400):
                connection.send(pack("PUBLISH", "game#1", json.dumps(f"{name}-{number}")))
                try:
                    frame = connection.frame()
                except ConnectionError:
                    return  # Closed inside a reply.
                if frame == CLOSED:
                    return
                counted[f"{name}-{number}"] = int(frame[1:])
                if (name, number) == (0, 150):
                    stop(server)

        # Consecutive connections are on different shards.
        connections = [RespConnection(server.resp_port) for _ in range(2)]
        speakers = [threading.Thread(target=speak, args=pair, daemon=True) for pair in enumerate(connections)]
        for speaker in speakers:
            speaker.start()
        start_again(server)
        for speaker, connection in zip(speakers, connections):
            speaker.join(5)
            connection.close()
        heard = collections.Counter()
        for poller in pollers:
            answer = {"cursor": 0, "more": True}
            while answer["more"]:
                answer = poller.poll(cursor=answer["cursor"], timeout_ms=0)
                assert not answer.get("gap") and not answer.get("reset")
                heard.update(event["data"] for event in answer["events"])
            poller.close()
        lost = {word: (count, heard[word]) for word, count in counted.items() if heard[word] < count}
        assert sum(count == 6 for count in counted.values()) >= 150
        assert not lost, f"counted and heard: {lost}"
