"""Channel history: positions, recovery and the last messages, on every transport."""
import json

import httpx
import pytest

from support import tokens
from support.json_client import Poller, Socket
from support.resp import RespConnection, pack
from support.tavern import Tavern

from history.conftest import CONFIG


def api(server, method, path, **options):
    headers = {"authorization": f"Bearer {server.key}"} | options.pop("headers", {})
    return httpx.request(method, f"{server.url}{path}", headers=headers, timeout=10, trust_env=False, **options)


def history_path(channel):
    return f"/v1/channels/{channel.replace('#', '%23')}/history"


def publish(socket, channel, numbers):
    return [socket.ok("publish", channel=channel, data=number) for number in numbers]


def position(reply):
    return {"epoch": reply["epoch"], "offset": reply["offset"]}


def received(socket, count):
    return [socket.event()["data"] for _ in range(count)]


@pytest.fixture
def ann(server):
    with Socket(server, user="ann") as socket:
        yield socket


@pytest.fixture
def bob(server):
    with Socket(server, user="bob") as socket:
        yield socket


def test_a_message_has_a_place_and_a_time(server, channel, ann, bob):
    subscribed = bob.ok("subscribe", channel=channel)
    assert subscribed == {"epoch": 0, "offset": 0}
    first, second = publish(ann, channel, [1, 2])
    assert (first["offset"], second["offset"], first["receivers"]) == (1, 2, 1)
    events = [bob.event(), bob.event()]
    assert [event["offset"] for event in events] == [1, 2]
    assert {event["epoch"] for event in events} == {first["epoch"]}
    assert all(event["at"] > 1_700_000_000_000 and event["from"]["user"] == "ann" for event in events)


def test_a_channel_without_history_has_no_place(server, ann, bob):
    assert bob.ok("subscribe", channel="room#1") == {}
    assert ann.ok("publish", channel="room#1", data=1) == {"receivers": 1}
    assert "offset" not in bob.event()
    assert bob.call("history", channel="room#1")["error"]["code"] == "not_found"
    refused = bob.call("subscribe", channel="room#2", last=5)["error"]
    assert refused["code"] == "bad_request" and "`last`" in refused["message"]
    assert bob.ok("subscribe", channel="room#2", last=1) == {}, "a retained message, if there is one"
    since = {"epoch": 1, "offset": 1}
    assert bob.call("subscribe", channel="room#2", since=since)["error"]["code"] == "not_found"


def test_a_newcomer_gets_the_last_messages(server, channel, ann, bob):
    publish(ann, channel, range(1, 8))
    reply = bob.ok("subscribe", channel=channel, last=3)
    assert reply["offset"] == 4 and "recovered" not in reply
    publish(ann, channel, [8])
    assert received(bob, 4) == [5, 6, 7, 8]
    assert bob.events_so_far() == []


def test_the_reply_comes_before_the_last_messages(server, channel, ann, bob):
    publish(ann, channel, [1, 2])
    bob.send(json.dumps({"id": "s", "op": "subscribe", "channel": channel, "last": 2}))
    frames = [bob.frame() for _ in range(3)]
    assert frames[0]["id"] == "s" and [frame.get("data") for frame in frames[1:]] == [1, 2]


def test_presence_and_history_in_one_reply(server, channel, ann, bob):
    publish(ann, channel, [1, 2])
    reply = bob.ok("subscribe", channel=channel, presence=True, last=1)
    assert reply["offset"] == 1 and "members" in reply
    assert received(bob, 1) == [2]


def test_a_client_recovers_from_its_position(server, channel, ann, bob):
    first = publish(ann, channel, range(1, 11))[3]
    reply = bob.ok("subscribe", channel=channel, since=position(first))
    assert reply == position(first) | {"recovered": True}
    assert received(bob, 6) == [5, 6, 7, 8, 9, 10]
    for wrong in ({"epoch": first["epoch"] + 1, "offset": 1}, {"epoch": first["epoch"], "offset": 99}):
        reply = bob.ok("subscribe", channel=channel, since=wrong)
        assert reply == {"epoch": first["epoch"], "offset": 10, "recovered": False}
    assert bob.events_so_far() == []


def test_what_was_trimmed_is_not_recovered(server, channel, ann, bob):
    old = publish(ann, channel, range(1, 61))[4]
    reply = bob.ok("subscribe", channel=channel, since=position(old))
    assert reply["recovered"] is False and reply["offset"] == 60
    assert bob.events_so_far() == []


def test_recovery_of_more_than_a_mailbox_is_paged(server, channel, ann, bob):
    first = publish(ann, channel, range(1, 51))[0]
    bob.ok("subscribe", channel=channel, since=position(first))
    assert received(bob, 49) == list(range(2, 51))


def test_polls_and_streams_recover_too(server, channel, ann):
    first = publish(ann, channel, range(1, 46))[0]
    with Poller(server, user="cid") as poller:
        poller.ok("hello")
        assert poller.ok("subscribe", channel=channel, since=position(first))["recovered"] is True
        taken = []
        while len(taken) < 44:
            taken += [event["data"] for event in poller.take()]
        assert taken == list(range(2, 46))
        assert poller.ok("history", channel=channel, limit=2)["more"] is True
    name = channel.replace("#", "%23")
    url = f"{server.url}/v1/stream?user=dan&channel={name}&last=3"
    with httpx.stream("GET", url, timeout=5, trust_env=False) as response:
        frames = (json.loads(line[5:]) for line in response.iter_lines() if line.startswith("data:"))
        data = []
        for frame in frames:
            if frame.get("event") == "message":
                data.append(frame["data"])
                if len(data) == 3:
                    break
    assert data == [43, 44, 45]


def test_a_resumed_session_whose_mailbox_overflowed_has_no_hole(server, channel, ann):
    bob = Socket(server, user="bob-resumes")
    session = bob.hello["session"]
    bob.ok("subscribe", channel=channel)
    bob.drop()
    publish(ann, channel, range(1, 50))
    with Poller(server, user="bob-resumes", session=session) as poller:
        data, events = [], []
        while len(data) < 49:
            events = poller.take()
            assert events, data
            assert all(event["event"] == "message" for event in events), events
            data += [event["data"] for event in events]
        assert data == list(range(1, 50))


def test_a_message_id_is_published_once(server, channel, ann, bob):
    bob.ok("subscribe", channel=channel)
    first = ann.ok("publish", channel=channel, data=1, message_id="m1")
    again = ann.ok("publish", channel=channel, data=1, message_id="m1")
    assert again == {"receivers": 0, "duplicate": True} | position(first)
    publish(ann, channel, [2])
    assert received(bob, 2) == [1, 2]


def test_a_stream_recovers_from_positions(server, channel, ann):
    first = publish(ann, channel, range(1, 6))[1]
    name = channel.replace("#", "%23")
    since = f"since={first['epoch']}:{first['offset']}"
    with httpx.stream("GET", f"{server.url}/v1/stream?user=dan&channel={name}&{since}", timeout=5, trust_env=False) as response:
        frames = (json.loads(line[5:]) for line in response.iter_lines() if line.startswith("data:"))
        data = []
        for frame in frames:
            if frame.get("id") == channel:
                assert frame["ok"]["recovered"] is True
            if frame.get("event") == "message":
                data.append(frame["data"])
                if len(data) == 3:
                    break
    assert data == [3, 4, 5]
    for wrong in ("since=1", "since=1:x", f"{since}&{since}"):
        refused = httpx.get(f"{server.url}/v1/stream?user=dan&channel={name}&{wrong}", trust_env=False)
        assert refused.status_code == 400, wrong


def test_a_retained_message_is_published_by_a_service(server, bob):
    for value in (1, 2):
        sent = api(server, "POST", "/v1/channels/room%23kept/messages", json={"data": value, "retain": True})
        assert sent.json() == {"receivers": 0}
    assert bob.ok("subscribe", channel="room#kept", last=1) == {}
    event = bob.event()
    assert event["data"] == 2 and "offset" not in event
    assert bob.call("publish", channel="user#bob", data=1, retain=True)["error"]["code"] in ("bad_request", "not_allowed")


def test_what_was_sent_and_not_received_is_recovered(server, channel, ann):
    bob = Socket(server, user="bob-deaf")
    session = bob.hello["session"]
    bob.ok("subscribe", channel=channel)
    publish(ann, channel, range(1, 46))
    # The client read 45 events and remembers two: the mailbox keeps 30.
    assert received(bob, 45) == list(range(1, 46))
    bob.drop()
    with Poller(server, user="bob-deaf", session=session, cursor=2) as poller:
        data = []
        while len(data) < 43:
            events = poller.take()
            assert events and all(event["event"] == "message" for event in events), (data, events)
            data += [event["data"] for event in events]
    assert data == list(range(3, 46))


def test_the_command_line_reads_and_clears(server, channel, ann):
    publish(ann, channel, [1, {"text": "two"}])
    shown = server.run("history", channel, "--url", server.url, "--key", server.key)
    assert shown.returncode == 0 and '{"text":"two"}' in shown.stdout and "ann" in shown.stdout, shown
    page = json.loads(server.run("history", channel, "--url", server.url, "--user", "eve", "--after", "1", "--json").stdout)
    assert [message["data"] for message in page["messages"]] == [{"text": "two"}]
    assert server.run("history", channel, "--clear", "--url", server.url, "--key", server.key).returncode == 0
    assert "no messages" in server.run("history", channel, "--url", server.url, "--key", server.key).stdout


def test_the_last_value_is_kept(server, ann, bob):
    publish(ann, "score#1", [1, 2, 3])
    bob.ok("subscribe", channel="score#1", last=1)
    assert received(bob, 1) == [3]


def test_redis_publishers_write_history_in_pipeline_order(server, channel, bob):
    bob.ok("subscribe", channel=channel)
    redis = RespConnection(server.resp_port)
    commands = [pack("PUBLISH", channel, str(number)) for number in range(40)]
    redis.send(b"".join([*commands, pack("PUBLISH", "room#other", "x"), pack("PING")]))
    replies = [redis.read() for _ in range(42)]
    assert replies[:41] == [1] * 40 + [0] and b"PONG" in (replies[41], str(replies[41]).encode())
    assert received(bob, 40) == list(range(40))
    page = bob.ok("history", channel=channel, limit=100)
    assert [message["data"] for message in page["messages"]] == list(range(40))
    redis.call("MULTI")
    redis.call("PUBLISH", channel, "no")
    assert "history" in str(redis.call("EXEC"))


def test_services_read_publish_and_clear(server, channel, ann, bob):
    bob.ok("subscribe", channel=channel)
    path = f"/v1/channels/{channel.replace('#', '%23')}/messages"
    sent = [
        api(server, "POST", path, json={"data": {"n": 1}}, headers={"idempotency-key": "k1"}).json() for _ in range(2)
    ]
    assert sent[0]["offset"] == sent[1]["offset"] == 1
    publish(ann, channel, [2, 3])
    page = api(server, "GET", history_path(channel), params={"after": 1, "limit": 1}).json()
    assert [message["data"] for message in page["messages"]] == [2] and page["more"] is True and page["offset"] == 3
    assert api(server, "GET", history_path("room#1")).status_code == 404
    assert httpx.get(f"{server.url}{history_path(channel)}", trust_env=False).status_code in (401, 403)
    assert api(server, "DELETE", history_path(channel)).status_code == 200
    empty = api(server, "GET", history_path(channel)).json()
    assert empty == {"epoch": 0, "offset": 0, "messages": [], "more": False}
    again = publish(ann, channel, [4])[0]
    assert again["offset"] == 1 and again["epoch"] > page["epoch"]
    assert received(bob, 4) == [{"n": 1}, 2, 3, 4]


def test_the_right_to_read_can_be_kept_apart():
    config = CONFIG + '[kinds.default]\nallow = []\n'
    with Tavern.serve(config) as server:
        codes = []
        for verbs in (["subscribe"], ["subscribe", "history"]):
            with Socket(server, token=tokens.token("eve", allow={"vault#*": verbs, "chat#*": verbs})) as eve:
                for wanted in ("vault#1", "chat#1"):
                    codes.append(eve.call("history", channel=wanted).get("error", {}).get("code"))
        assert codes == ["not_allowed", None, None, None]


def test_history_survives_a_restart():
    with Tavern.dev(CONFIG) as server:
        with Socket(server, user="ann") as ann:
            first = publish(ann, "chat#r", [1, 2, 3])[0]
        server.terminate()
        server.start()
        with Socket(server, user="bob") as bob:
            reply = bob.ok("subscribe", channel="chat#r", since=position(first))
            assert reply["recovered"] is True
            assert received(bob, 2) == [2, 3]


def test_history_survives_a_kill():
    with Tavern.dev(CONFIG) as server:
        with Socket(server, user="ann") as ann:
            first = publish(ann, "chat#k", [1, 2, 3])[0]
            server.kill()
        server.start()
        with Socket(server, user="bob") as bob:
            assert bob.ok("subscribe", channel="chat#k", since=position(first))["recovered"] is True
            assert received(bob, 2) == [2, 3]
            assert publish(bob, "chat#k", [4])[0]["offset"] == 4
