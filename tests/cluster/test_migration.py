"""Sessions that move between servers: on every transport, with their unread events, invisible to watchers."""
import threading
import time

import httpx
import pytest

from cluster.combination import FOLDER
from support.http_connection import Connection, request
from support.json_client import Poller, Socket, Stream
from support.process import until
from support.resp import RespConnection


def publish(server, channel, *messages):
    connection = RespConnection(server.resp_port)
    for message in messages:
        connection.call("PUBLISH", channel, message)
    connection.close()


def numbers(events):
    return [(event["seq"], event["data"]) for event in events]


def test_a_websocket_resumes_on_another_server(nodes, channel):
    a, b, c = nodes
    old = Socket(a, user="ann")
    old.ok("subscribe", channel=channel)
    old.ok("subscribe", pattern=channel[:-1] + "[y]")
    publish(c, channel, 1, 2)
    assert numbers([old.event(), old.event()]) == [(1, 1), (2, 2)]
    with Socket(b, user="ann") as new:
        hello = new.ok("hello", session=old.hello["session"], seq=1)
        assert (hello["resumed"], hello["client"], hello["seq"]) == (True, old.hello["client"], 2)
        assert hello["node"] != old.hello["node"] and hello["session"].endswith("~" + hello["node"])
        frames, code = old.closing()
        assert frames[-1] == {"event": "superseded"} and code == 4000
        for server in nodes:
            publish(server, channel, 3)
        publish(a, channel[:-1] + "y", 4)
        received = [new.event() for _ in range(5)]
        assert [event["seq"] for event in received] == [2, 3, 4, 5, 6]
        assert sorted(event["data"] for event in received) == [2, 3, 3, 3, 4], "no order between publishers"
        assert new.events_so_far() == []
        new.ok("unsubscribe", channel=channel)


def test_url_parameters_resume_a_session_of_another_server(nodes, channel):
    a, b, _ = nodes
    old = Socket(a, user="ann")
    old.ok("subscribe", channel=channel)
    session = old.hello["session"]
    old.drop()
    publish(b, channel, 1)

    class Again(Socket):
        @staticmethod
        def _open(server, user, *more):
            return Socket._open(server, f"{user}&session={session}&seq=0", *more)

    import support.json_client as client
    original = client.address
    client.address = lambda url, **query: original(url, **query).replace("%26", "&").replace("%3D", "=")
    try:
        with Again(b, user="ann") as new:
            assert (new.hello["resumed"], new.hello["client"]) == (True, old.hello["client"])
            assert new.event()["data"] == 1
    finally:
        client.address = original


def test_a_poller_moves_between_servers(nodes, channel):
    poller = Poller(nodes[0], user="bob")
    client = poller.ok("hello")["client"]
    poller.ok("subscribe", channel=channel)
    session, cursor = poller.session, 0
    for turn, server in enumerate([nodes[1], nodes[2], nodes[0], nodes[1]]):
        publish(nodes[turn % 3], channel, turn)
        with Poller(server, user="bob", session=session, cursor=cursor) as other:
            taken = other.poll()
            assert numbers(taken["events"]) == [(turn + 1, turn)] and not taken.get("reset")
            assert other.ok("hello")["client"] == client
            session, cursor = taken["session"], taken["cursor"]
    # The session secret is enough, as on one server.
    publish(nodes[0], channel, "last")
    answer = httpx.post(f"{nodes[2].url}/v1/poll", json={"session": session, "cursor": cursor}, trust_env=False).json()
    assert numbers(answer["events"]) == [(5, "last")]
    poller.http.close()


@pytest.mark.only(FOLDER)  # What a shard counts does not depend on the engines.
def test_polls_whose_sessions_were_elsewhere_count_as_logged_in(combination):
    with combination.cluster(2, "[limits]\nunauthenticated_total_bytes = 65536\n") as (old, new):
        with Connection(old) as opening:
            sessions = [opening.command({"op": "hello"})[2]["ok"]["session"] for _ in range(100)]
        connections = []
        for count, session in enumerate(sessions, 1):
            connections.append(Connection(new))
            poll = {"session": session, "timeout_ms": 20_000}
            connections[-1].send(request("POST", "/v1/poll?user=ann", poll))
            if count % 20 == 0:
                parked = f'tavern_transport_connections{{transport="poll"}} {count}\n'
                until(lambda: parked in new.metrics(), f"{count} polls to park")
        assert new.metric("tavern_connections_closed_unauthenticated_total") == 0
        for connection in connections:
            connection.socket.close()


def test_a_parked_poll_is_superseded_from_another_server(nodes, channel):
    with Poller(nodes[0], user="bob") as poller:
        client = poller.ok("hello")["client"]
        answers = []
        parked = threading.Thread(target=lambda: answers.append(poller.poll(timeout_ms=20_000)), daemon=True)
        parked.start()
        with httpx.Client(headers={"authorization": f"Bearer {nodes[0].key}"}, trust_env=False) as operator:
            report = lambda: operator.get(f"{nodes[0].url}/v1/sessions/{client}").json()
            until(lambda: report()["transport"] == "poll", "the poll to park")
        with Socket(nodes[1], user="bob") as socket:
            assert socket.ok("hello", session=poller.session, seq=0)["resumed"] is True
            parked.join(5)
            assert answers[0]["superseded"] is True


def test_a_stream_resumes_on_another_server_by_last_event_id(nodes, channel):
    old = Stream(nodes[0], user="cid")
    hello = old.greeting()
    with Poller(nodes[0], user="cid", session=hello["session"]) as hand:
        hand.ok("subscribe", channel=channel)
        publish(nodes[2], channel, 1, 2, 3)
        assert [old.event()[0] for _ in range(3)] == [1, 2, 3]
    with Stream(nodes[1], user="cid", session=hello["session"], headers={"last-event-id": "1"}) as new:
        greeting = new.greeting()
        assert (greeting["resumed"], greeting["client"]) == (True, hello["client"])
        assert [new.event()[1]["data"] for _ in range(2)] == [2, 3]
        assert old.event()[1] == {"event": "superseded"} and old.event() is None
        publish(nodes[0], channel, 4)
        assert new.event()[1]["data"] == 4
        # A command to a third server does not take the session from its stream.
        with Poller(nodes[2], user="cid", session=greeting["session"]) as hand:
            refused = hand.command("subscribe", channel=channel)
            assert refused["error"]["code"] == "conflict" and greeting["node"] in refused["error"]["message"]
        publish(nodes[2], channel, 5)
        assert new.event()[1]["data"] == 5
    old.close()


def test_commands_find_a_detached_session(nodes, channel):
    with Poller(nodes[0], user="bob") as poller:
        poller.ok("hello")
        with Poller(nodes[1], user="bob", session=poller.session) as other:
            other.ok("subscribe", channel=channel)
            publish(nodes[2], channel, 1)
            assert [event["data"] for event in other.take()] == [1]


def test_another_user_cannot_take_the_session(nodes, channel):
    a, b, _ = nodes
    with Socket(a, user="ann") as ann:
        ann.ok("subscribe", channel=channel)
        with Socket(b, user="eve") as eve:
            assert eve.ok("hello", session=ann.hello["session"], seq=0)["resumed"] is False
        with Poller(b, user="eve", session=ann.hello["session"]) as eve:
            answer = eve.poll(timeout_ms=0)
            assert answer["reset"] is True and answer["session"] != ann.hello["session"]
        publish(b, channel, 1)
        assert ann.event()["data"] == 1, "untouched"


def test_an_unknown_session_is_denied_in_time(nodes):
    with Socket(nodes[0], user="ann") as ann:
        gone = ann.hello["session"]
    with Socket(nodes[1], user="ann") as again:
        began = time.monotonic()
        assert again.ok("hello", session=gone, seq=0)["resumed"] is False
        assert time.monotonic() - began < 2


def test_a_migration_is_invisible_to_watchers(nodes, channel):
    with Socket(nodes[2], user="watcher") as watcher:
        watcher.ok("subscribe", channel=channel, presence=True)
        ann = Socket(nodes[0], user="ann")
        ann.ok("join", channel=channel, state={"x": 1})
        ann.ok("subscribe", channel=channel, presence=True)
        assert [watcher.event()["event"] for _ in range(2)] == ["user_online", "client_online"]
        session = ann.hello["session"]
        for server in (nodes[1], nodes[2], nodes[0], nodes[1]):
            ann.drop()
            ann = Socket(server, user="ann")
            hello = ann.ok("hello", session=session, seq=0)
            assert hello["resumed"] is True
            session = hello["session"]
        time.sleep(3)
        assert watcher.events_so_far() == []
        assert watcher.ok("who", channel=channel)["users"][0]["clients"][0]["state"] == {"x": 1}
        # The moved session watches too and missed nothing.
        watcher.ok("join", channel=channel)
        arrivals = [event for event in ann.events_so_far() if event["user"] == "watcher"]
        while len(arrivals) < 2:
            arrivals.append(ann.event())
        assert [event["event"] for event in arrivals] == ["user_online", "client_online"]
        ann.close()
        assert [watcher.event()["event"] for _ in range(4)][2:] == ["client_offline", "user_offline"]


def test_messages_during_migrations_arrive_once_and_in_order(nodes, channel):
    """Speakers on three servers talk without a pause; a listener is carried around between the servers."""
    over = threading.Event()
    counts = [0, 0, 0]

    def publish_all(at):
        connection = RespConnection(nodes[at].resp_port)
        while not over.is_set():
            connection.call("PUBLISH", channel, f"[{at},{counts[at]}]")
            counts[at] += 1
            # Slow enough not to overflow the mailbox.
            over.wait(0.01)
        connection.close()

    ann = Socket(nodes[0], user="ann")
    ann.ok("subscribe", channel=channel)
    session, seq, received = ann.hello["session"], 0, [[], [], []]

    def read(frame):
        nonlocal seq
        assert frame["event"] == "message", frame
        assert frame["seq"] == seq + 1
        seq = frame["seq"]
        at, n = frame["data"]
        received[at].append(n)

    publishers = [threading.Thread(target=publish_all, args=(at,), daemon=True) for at in range(3)]
    for publisher in publishers:
        publisher.start()
    for turn in range(1, 10):
        for _ in range(10):
            read(ann.event())
        for event in ann.events_so_far():
            read(event)
        ann.drop()
        ann = Socket(nodes[turn % 3], user="ann")
        hello = ann.ok("hello", session=session, seq=seq)
        assert hello["resumed"] is True, hello
        session = hello["session"]
    over.set()
    for publisher in publishers:
        publisher.join(10)
    while [len(numbers) for numbers in received] != counts:
        read(ann.event())
    for numbers, count in zip(received, counts):
        assert numbers == list(range(count))
    ann.close()


@pytest.mark.only(FOLDER, reason="a folder is what its processes share")
def test_folder_messages_arrive_once_through_a_migration(nodes, channel):
    """A publisher on the folder has no sequence numbers; its position in the log identifies the message."""
    import subprocess
    from support.tavern import program
    ann = Socket(nodes[0], user="ann")
    ann.ok("subscribe", channel=channel)
    session, seq, published = ann.hello["session"], 0, 0
    for turn in range(1, 7):
        for _ in range(5):
            subprocess.run([program(), "publish", "--data", nodes[0].data, channel, str(published)], check=True,
                           env=nodes[0].environment(), capture_output=True, timeout=10)
            published += 1
        ann.drop()
        ann = Socket(nodes[turn % 3], user="ann")
        hello = ann.ok("hello", session=session, seq=seq)
        assert hello["resumed"] is True
        session = hello["session"]
        received = [ann.event() for _ in range(published - seq)]
        assert numbers(received) == [(n + 1, n) for n in range(seq, published)]
        seq = published
    assert ann.events_so_far() == []
    ann.close()
