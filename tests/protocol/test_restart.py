"""Restarts: sessions saved by a graceful stop are restored from the same folder, with any number of threads."""
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


def publish(server, *messages):
    """Publishes (channel, data) pairs; returns the receiver counts."""
    connection = RespConnection(server.resp_port)
    connection.send(b"".join(pack("PUBLISH", channel, json.dumps(data)) for channel, data in messages))
    receivers = [connection.read() for _ in messages]
    connection.close()
    return receivers


def test_a_websocket_session_resumes(server):
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

    # The client resumes at seq 3: all later events are sent again.
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
    assert events == read[3:], "identical events"
    assert publish(server, ("game#1", 7), ("chat#y", 8), ("game#2", "no")) == [1, 1, 0]
    assert [(e["seq"], e["data"]) for e in (back.event(), back.event())] == [(7, 7), (8, 8)]
    back.ok("unsubscribe", pattern="chat#*")
    assert publish(server, ("chat#x", "no"), ("game#1", 9)) == [0, 1]
    assert back.event()["data"] == 9
    back.close()


def test_unsent_events_survive(server):
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


def test_a_session_resumes_by_url_parameters(server):
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


def test_a_long_poll_session_resumes(server):
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
        # Cursor 3 acknowledged everything; one more message arrives with the next seq.
        publish(server, ("chat#z", 4))
        answer = poller.poll(cursor=3)
        assert not answer.get("reset") and not answer.get("gap")
        assert [(event["seq"], event["data"]) for event in answer["events"]] == [(4, 4)]


def test_unacknowledged_poll_events_are_returned_again(server):
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


def test_a_stream_session_resumes(server):
    stream = Stream(server, user="cid")
    hello = stream.greeting()
    with Poller(server, user="cid", session=hello["session"]) as commands:
        commands.ok("subscribe", channel="game#1")
        commands.ok("subscribe", pattern="chat#*")
        publish(server, ("game#1", 1), ("chat#x", 2), ("game#1", 3))
        assert [stream.event()[0] for _ in range(3)] == [1, 2, 3]
        stop(server)
        number, closing = stream.event()
        assert number is None and closing["event"] == "closing"
        assert stream.event() is None, "the stream ends"
        stream.close()
        start_again(server)
        # As browsers do: the same URL with Last-Event-ID.
        with Stream(server, user="cid", session=hello["session"], headers={"last-event-id": "1"}) as back:
            greeting = back.greeting()
            assert (greeting["resumed"], greeting["client"]) == (True, hello["client"])
            assert [(number, event["data"]) for number, event in (back.event(), back.event())] == [(2, 2), (3, 3)]
            publish(server, ("chat#y", 4))
            assert back.event()[1]["data"] == 4


def test_a_session_survives_two_restarts(server):
    with Poller(server, user="bob") as poller:
        client = poller.ok("hello")["client"]
        poller.ok("subscribe", channel="game#1")
        for number in range(1, 4):
            assert publish(server, ("game#1", number)) == [1]
            stop(server)
            start_again(server)
        assert [event["data"] for event in poller.poll(cursor=0)["events"]] == [1, 2, 3]
        assert poller.ok("hello", seq=0)["client"] == client


def test_a_session_ended_with_bye_is_not_restored(server):
    socket = Socket(server, user="ann")
    session = socket.hello["session"]
    socket.ok("subscribe", channel="game#1")
    socket.close()
    stop(server)
    start_again(server)
    with Socket(server, user="ann") as back:
        assert back.ok("hello", session=session, seq=0)["resumed"] is False
    assert publish(server, ("game#1", 1)) == [0]


def test_another_user_cannot_resume_a_session_after_a_restart(server):
    with Poller(server, user="bob") as poller:
        poller.ok("hello")
        stop(server)
        start_again(server)
        with Socket(server, user="mallory") as mallory:
            reply = mallory.call("hello", session=poller.session, seq=0)
            assert "error" in reply or reply["ok"]["resumed"] is False
        assert poller.ok("hello", seq=0)["resumed"] is True


def test_after_a_crash_sessions_are_new_and_the_server_works(server):
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
def test_200_sessions_resume(before, after):
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
            # A frame in flight is not lost: it is still in the mailbox.
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
def test_accepted_messages_are_not_lost_by_a_stop(threads):
    """Publishers continue during the stop: a message counted for n receivers is in n mailboxes afterwards."""
    with Tavern.dev(config(threads)) as server:
        pollers = [Poller(server, user=f"bob-{n}") for n in range(6)]
        for poller in pollers:
            poller.ok("hello")
            poller.ok("subscribe", channel="game#1")
        counted = {}

        def publish_all(name, connection):
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
        publishers = [threading.Thread(target=publish_all, args=pair, daemon=True) for pair in enumerate(connections)]
        for publisher in publishers:
            publisher.start()
        start_again(server)
        for publisher, connection in zip(publishers, connections):
            publisher.join(5)
            connection.close()
        received = collections.Counter()
        for poller in pollers:
            answer = {"cursor": 0, "more": True}
            while answer["more"]:
                answer = poller.poll(cursor=answer["cursor"], timeout_ms=0)
                assert not answer.get("gap") and not answer.get("reset")
                received.update(event["data"] for event in answer["events"])
            poller.close()
        lost = {message: (count, received[message]) for message, count in counted.items() if received[message] < count}
        assert sum(count == 6 for count in counted.values()) >= 150
        assert not lost, f"counted and received: {lost}"
