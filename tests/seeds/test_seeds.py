"""The wire forms of the projects that Tavern's ideas come from, checked by programs that know only what those projects wrote down."""
import itertools
import json
import subprocess
import threading
import time

import httpx
import pytest
import redis

from seeds import rlite_answers
from seeds.party_note_client import NoteClient
from seeds.routemaster_consumer import Consumer
from support.json_client import connect_online
from support.process import until
from support.tavern import Tavern, program

COUNT = itertools.count(1)


@pytest.fixture(scope="module")
def server():
    with Tavern.dev() as server:
        yield server


@pytest.fixture
def topic():
    return f"widgets-{next(COUNT)}"


@pytest.fixture
def api(server):
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {server.key}"}, timeout=20, trust_env=False) as api:
        yield api


def subscribe(api, topic, consumer, **more):
    wanted = {"topics": [topic], "callback": consumer.callback, "format": "routemaster", "uuid": consumer.uuid} | more
    answer = api.put(f"/v1/subscriptions/{topic}-consumer", json=wanted)
    assert answer.status_code in (200, 201), answer.text


def publish(api, topic, *kinds):
    events = [{"type": kind, "url": f"https://shop.example/{topic}/{number}"} for number, kind in enumerate(kinds)]
    assert api.post(f"/v1/topics/{topic}/events", json=events).status_code in (200, 201, 202)


def test_routemaster_events_arrive_in_full_or_stale_batches(api, topic):
    with Consumer("uuid-of-the-consumer") as consumer:
        subscribe(api, topic, consumer, timeout_ms=300, max_events=3)
        publish(api, topic, "create", "update", "delete", "noop")
        events = consumer.wait_for(4)
        assert [(event["topic"], event["type"], event["url"]) for event in events] == [
            (topic, kind, f"https://shop.example/{topic}/{number}") for number, kind in enumerate(["create", "update", "delete", "noop"])
        ]
        assert [len(batch) for batch in consumer.batches] == [3, 1], "a full batch goes at once, the rest when it is stale"
        assert all(abs(event["t"] / 1000 - time.time()) < 600 for event in events)


def test_a_routemaster_batch_that_fails_is_delivered_again(api, topic):
    with Consumer("uuid-2") as consumer:
        consumer.failing = 1
        subscribe(api, topic, consumer, timeout_ms=0, max_events=10)
        publish(api, topic, "create", "update")
        assert [event["type"] for event in consumer.wait_for(2)] == ["create", "update"]
        assert consumer.failed == consumer.batches[:1], "the same batch again"


def rlite(folder, *arguments, **options):
    """A process that opens the same database."""
    command = [program(), *arguments[:1], "--data", folder, *arguments[1:]]
    return subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def published(folder, channel, payload):
    done = rlite(folder, "publish", channel, payload)
    out, errors = done.communicate(timeout=20)
    assert done.returncode == 0, errors
    return int(out.split()[0])


def test_rlite_processes_publish_and_subscribe_through_a_folder(tmp_path):
    """Subscribe to a channel and a pattern; the publisher counts both; each message is there when the subscriber reads."""
    folder = tmp_path / "database"
    reader = rlite(folder, "subscribe", "--pattern", "new?", "--count", "2", "news")
    try:
        until(lambda: published(folder, "nothing", "x") == 0 and published_if_heard(folder), "the subscriber", 20)
        lines = [json.loads(line) for line in reader.communicate(timeout=20)[0].splitlines()]
    finally:
        reader.kill()
        reader.wait()
    assert (lines[0]["channel"], lines[0]["data"], "pattern" in lines[0]) == ("news", "hello", False)
    assert lines[1]["pattern"] == "new?" and lines[1]["channel"] == "news", "the pattern's copy has one element more"
    assert published(folder, "news", "late") == 0, "a subscriber that is gone is not counted"


def published_if_heard(folder):
    """Publishes when both subscriptions are there: rlite counts a channel and a pattern separately."""
    return published(folder, "news", "hello") == 2


def test_rlite_polls_and_blocking_reads_over_the_redis_protocol(server):
    """rlite polls by default and has another call that blocks up to a timeout; here both are calls of a connection."""
    subscriber = redis.Redis(port=server.resp_port, protocol=2, socket_timeout=20).connection_pool.get_connection()
    say = lambda *words: (subscriber.send_command(*words), subscriber.read_response())[1]
    publisher = redis.Redis(port=server.resp_port)
    assert say("TAVERN.MODE", "poll") == b"OK"
    assert say("SUBSCRIBE", "channel") == [b"subscribe", b"channel", 1]
    assert say("PSUBSCRIBE", "chan*") == [b"psubscribe", b"chan*", 2]
    assert say("TAVERN.POLL") == [], "nothing yet"
    assert publisher.publish("channel", "hello world") == 2
    assert say("TAVERN.POLL") == [[b"message", b"channel", b"hello world"], [b"pmessage", b"chan*", b"channel", b"hello world"]]
    assert say("TAVERN.POLL") == []
    later = threading.Timer(0.2, lambda: publisher.publish("channel", "again"))
    later.start()
    assert say("TAVERN.WAIT", "10000", "1") == [[b"message", b"channel", b"again"]]
    later.join()
    assert say("UNSUBSCRIBE", "channel") == [b"unsubscribe", b"channel", 1]
    assert say("PUNSUBSCRIBE", "chan*") == [b"punsubscribe", b"chan*", 0]
    assert publisher.publish("channel", "nobody") == 0
    subscriber.disconnect()


def test_tavern_answers_as_rlite_does():
    """The answers of rlite itself are recorded by `rlite_answers.py`."""
    expected = json.loads(rlite_answers.ANSWERS.read_text())
    assert len(expected) == len(rlite_answers.SCRIPT), "record the answers again"
    with Tavern.dev() as server:
        subscriber, publisher = (redis.Redis(port=server.resp_port, protocol=2, socket_timeout=20).connection_pool.get_connection()
                                 for _ in range(2))
        ends = {"subscriber": subscriber, "publisher": publisher}
        subscriber.send_command("TAVERN.MODE", "poll")
        assert subscriber.read_response() == b"OK"
        for (who, *words), wanted in zip(rlite_answers.SCRIPT, expected, strict=True):
            ends[who].send_command(*words)
            # Subscribing to several channels is answered once for each; rlite hands out the others like messages.
            more = len(words) - 2 if words[0] == "subscribe" else 0
            answer, *heard = [ends[who].read_response() for _ in range(1 + more)]
            subscriber.send_command("TAVERN.POLL")
            heard += subscriber.read_response()
            assert rlite_answers.plain({"answer": answer, "heard": heard}) == wanted, words
        subscriber.disconnect()
        publisher.disconnect()


@pytest.fixture
def people(server):
    number = next(COUNT)
    names = [f"{name}-{number}" for name in ("ann", "bob", "cat")]
    with NoteClient(server, names[0]) as ann, NoteClient(server, names[1]) as bob, NoteClient(server, names[2]) as cat:
        # An invite reaches users who are logged in.
        for one in names:
            with connect_online(server, one):
                pass
        yield ann, bob, cat


def test_a_party_by_the_note(people):
    ann, bob, cat = people
    party = ann.command("invite", invite_login=bob.user)["party_id"]
    invited = bob.event()
    assert (invited["cmd"], invited["uid"]) == ("invite", ann.user)
    assert "error" not in bob.command("accept", party_id=party)
    accepted = ann.event()
    assert (accepted["cmd"], accepted["uid"], accepted["party_id"]) == ("accept", bob.user, party)
    until(lambda: ann.party and [member["user"] for member in ann.party["members"]] == [ann.user, bob.user], "the leader first", 30)
    ann.command("invite", invite_login=cat.user)
    assert cat.event()["cmd"] == "invite"
    cat.command("decline", party_id=party, user_msg="later")
    declined = next(event for event in iter(ann.event, None) if event["cmd"] == "decline")
    assert (declined["uid"], declined["reason"]) == (cat.user, "later")
    refused = bob.command("kick", party_id=party, target_uid=ann.user)
    assert refused["error"], "only the master may kick"
    ann.command("kick", party_id=party, target_uid=bob.user, user_msg="bye")
    kicked = next(event for event in iter(bob.event, None) if event["cmd"] == "kick")
    assert kicked["reason"] == "bye"


def test_a_ping_without_events_waits(people):
    ann, bob, _ = people
    assert ann.first.wait(30)
    begun = time.monotonic()
    threading.Timer(0.5, lambda: bob.command("invite", invite_login=ann.user)).start()
    assert ann.event()["cmd"] == "invite"
    assert time.monotonic() - begun < 10, "the event wakes the ping"
