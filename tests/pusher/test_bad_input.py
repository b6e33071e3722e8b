"""Clients that break the rules: each is told why with the code of the protocol, and others notice nothing."""
import json
import subprocess

import pytest

from pusher.raw_client import RawClient
from pusher.world import App
from support.process import until
from support.tavern import Tavern


def ends_with(client, code):
    """The connection ends with this error: as an event, which libraries read, and as the code of the close frame."""
    events, closed = client.end()
    assert events[-1]["event"] == "pusher:error" and events[-1]["data"]["code"] == code, events[-3:]
    assert events[-1]["data"]["message"] and closed == code
    return events


def echoes(client):
    client.send("pusher:ping")
    assert client.waits("pusher:pong")


@pytest.mark.parametrize("query, key, code", [
    ("protocol=7", "no-such-key", 4001), ("protocol=x", None, 4006), ("protocol=4", None, 4007), ("protocol=8", None, 4007),
    ("client=js", None, 4008),
])
def test_a_wrong_address_gets_the_code_of_the_protocol(app, server, query, key, code):
    with RawClient(server, app, query, key) as client:
        ends_with(client, code)


def test_a_ping_is_answered_and_a_frame_that_is_too_large_ends_the_connection(app, server):
    with RawClient(server, app) as client:
        client.established()
        echoes(client)
        client.send_text("x" * 65_537)
        assert client.end()[1] == 1009


def test_what_is_not_text_ends_the_connection(app, server):
    for opcode, payload in ((2, b"binary"), (1, b"\xff\xfe")):
        with RawClient(server, app) as client:
            client.established()
            client.send_text(payload, opcode)
            assert client.end()[1] in (1002, 1003, 1007)


@pytest.mark.parametrize("frame", [
    "nonsense", '{"event":"unknown"}', '{"event":"pusher:subscribe","data":{"channel":"no channel"}}',
    '{"event":"pusher:subscribe","data":{"channel":"private-room","auth":"key-1:00"}}',
])
def test_a_flood_of_frames_that_are_refused_ends_the_connection(clients, api, app, server, room, frame):
    other = clients.client(app, server).connected().subscribe(room)
    with RawClient(server, app) as client:
        client.established()
        for _ in range(1_001):
            client.send_text(frame)
        assert len(ends_with(client, 4100)) == 1_002
    api.trigger(room, "after", "x")
    other.waits("after", room)


def test_a_client_that_succeeds_in_between_is_no_flood(app, server, room):
    with RawClient(server, app) as client:
        client.established()
        for _ in range(3):
            for _ in range(400):
                client.send_text("nonsense")
            echoes(client)


def test_a_client_that_answers_no_ping_is_closed():
    app = App(1)
    with Tavern.serve(app.config + "[sessions]\nheartbeat_ms = 500\n") as server, RawClient(server, app) as client:
        client.established()
        ends_with(client, 4201)


def test_a_client_that_only_answers_pings_stays():
    app = App(1)
    with Tavern.serve(app.config + "[sessions]\nheartbeat_ms = 300\n") as server, RawClient(server, app, lives=True) as client:
        client.established()
        client.subscribe("room")
        client.waits("pusher_internal:subscription_succeeded")
        for _ in range(6):
            client.answers_ping()
        echoes(client)


def test_a_server_that_stops_tells_its_clients_to_come_back_at_once():
    app = App(1)
    with Tavern.serve(app.config) as server, RawClient(server, app) as client:
        client.established()
        server.terminate()
        ends_with(client, 4200)


def test_a_client_that_does_not_read_is_closed_and_delays_nobody(clients):
    app = App(1)
    with Tavern.serve(app.config + "[sessions]\nheartbeat_ms = 2000\n") as server:
        api = clients.server(app, server)
        with RawClient(server, app, lives=True) as reader, RawClient(server, app, receive_bytes=4096) as sleeper:
            for client in (reader, sleeper):
                client.established()
                client.subscribe("room")
                client.waits("pusher_internal:subscription_succeeded")
            until(lambda: server.metric("tavern_pusher_connections") == 2, "both connections")
            # More than the buffers of a connection.
            for first in range(0, 1_500, 10):
                batch = [{"channel": "room", "name": "big", "data": {"n": first + n, "text": "x" * 9_000}} for n in range(10)]
                assert api.call("triggerBatch", batch)["status"] == 200
                assert [json.loads(reader.waits("big")["data"])["n"] for _ in batch] == list(range(first, first + 10))
            until(lambda: server.metric("tavern_pusher_connections") == 1, "the slow one to be closed", 30)


def test_who_shows_no_signature_in_time_is_closed():
    app = App(1, user_authentication="true")
    # Longer than the thirty seconds that a client has: this one answers no ping.
    with Tavern.serve(app.config + "[sessions]\nheartbeat_ms = 60000\n") as server, RawClient(server, app) as late, RawClient(server, app) as signed:
        late.established()
        auth = signed.signature(f"{signed.established()}:private-room")
        signed.subscribe("private-room", auth=auth)
        signed.waits("pusher_internal:subscription_succeeded")
        late.socket.settimeout(60)
        ends_with(late, 4009)
        echoes(signed)


def test_both_secrets_sign_for_clients_while_one_is_replaced():
    app = App(1, former_secret='"old-secret-3f1a"')
    with Tavern.serve(app.config) as server:
        for secret, is_right in ((app.secret, True), ("old-secret-3f1a", True), ("another", False)):
            with RawClient(server, app) as client:
                auth = client.signature(f"{client.established()}:private-room", secret)
                client.subscribe("private-room", auth=auth)
                answer = client.next()["event"]
                assert answer == ("pusher_internal:subscription_succeeded" if is_right else "pusher:subscription_error")


def test_without_a_grace_period_a_lost_member_is_removed_at_once(clients):
    app = App(1)
    with Tavern.serve(app.config.replace("grace_ms = 1000", "grace_ms = 0")) as server:
        clients.server(app, server)
        ann = clients.client(app, server, user={"user_id": "ann"}).connected().subscribe("presence-room")
        bob = clients.client(app, server, user={"user_id": "bob"}).connected().subscribe("presence-room")
        ann.has_members("presence-room", "ann", "bob")
        bob.do("disconnect")
        # Less than the grace period of a kind that does not say another.
        ann.has_members("presence-room", "ann", timeout=10)
        # Each time, and not only the first.
        bob = clients.client(app, server, user={"user_id": "bob"}).connected().subscribe("presence-room")
        ann.waits("pusher:member_added", "presence-room", count=2)
        bob.do("cut")
        ann.waits("pusher:member_removed", "presence-room", count=2, timeout=10)


def test_redis_and_rest_publish_to_pusher_and_hear_it(clients, api, app, server, room):
    ann = clients.client(app, server).connected().subscribe(room)
    channel = app.channel(room)
    redis = ["redis-cli", "-p", str(server.resp_port), "--no-auth-warning", "-a", server.key]
    with subprocess.Popen([*redis, "SUBSCRIBE", channel], stdout=subprocess.PIPE, text=True) as listener:
        try:
            assert [listener.stdout.readline().strip() for _ in range(3)] == ["subscribe", channel, "1"]
            subprocess.run([*redis, "PUBLISH", channel, '{"event":"moved","data":{"x":1}}'], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([*redis, "PUBLISH", channel, "hello"], check=True, stdout=subprocess.DEVNULL)
            assert ann.waits("moved", room) == {"x": 1}
            assert ann.waits("message", room) == "hello"
            api.trigger(room, "back", {"y": 2})
            heard = [listener.stdout.readline().strip() for _ in range(9)]
            assert heard[2::3] == ['{"event":"moved","data":{"x":1}}', "hello", '{"event":"back","data":{"y":2}}']
        finally:
            listener.terminate()
