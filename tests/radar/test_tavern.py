"""What Tavern adds for Radar's clients: channels that are shared with its own clients, tokens, limits."""
import socket
import time

import httpx
import pytest

from radar.world import CONFIG, RadarClient, Runtime, client_offline, client_online, offline, online, scope
from support import tokens
from support.json_client import Socket
from support.process import until
from support.tavern import Tavern

HANDSHAKE = {"EIO": "4", "transport": "polling"}
ALLOW = {"radar-*#acme/*": ["subscribe", "publish", "join", "presence"]}


@pytest.fixture(scope="module")
def server():
    with Tavern.dev(CONFIG) as server:
        yield server


@pytest.fixture(scope="module")
def production():
    with Tavern.serve(CONFIG + "[radar]\nenabled = true\n[clock]\ntoken_leeway_ms = 0\n") as server:
        yield server


@pytest.fixture
def clients():
    with Runtime("node") as runtime:
        yield lambda name, server, **config: RadarClient(runtime, name, server, **config)


def engine(server, method="GET", content=None, headers=None, **query):
    return httpx.request(method, f"{server.url}/engine.io/", params=query, content=content, headers=headers, timeout=20, trust_env=False)


def errors(client):
    return [frame for frame in client.frames() if frame["op"] == "err"]


def opened(server):
    answer = engine(server, **HANDSHAKE)
    assert answer.status_code == 200 and answer.text.startswith("0{")
    return answer.text.split('"sid":"')[1].split('"')[0]


def test_tavern_clients_and_radar_clients_are_in_one_room(server, clients, room):
    channel = f"radar-presence#acme/{room}"
    bob = clients("bob", server, user=7)
    with Socket(server, user="tina") as tina:
        tina.ok("subscribe", channel=channel, presence=True)
        bob.online(room, {"tab": 1})
        assert tina.event()["event"] == "user_online"
        event = tina.event()
        state = {"userId": 7, "userType": 2, "userData": {"name": "bob"}, "clientData": {"tab": 1}}
        assert (event["user"], event["client"], event["state"]) == ("7", bob.id, state)
        ann = clients("ann", server)
        ann.presence(room, "subscribe")
        tina.ok("join", channel=channel, state={"ready": True})
        value = {"userId": "tina", "clientId": tina.hello["client"], "clientData": {"ready": True}}
        ann.hears(
            {"to": scope(room), "op": "online", "value": {"tina": 0}}, {"to": scope(room), "op": "client_online", "value": value},
        )
        tina.ok("leave", channel=channel)
        until(lambda: [event["op"] for event in ann.events()] == ["client_offline", "offline"], "tina to leave")


def test_messages_and_statuses_go_both_ways(server, clients, room):
    bob = clients("bob", server)
    with Socket(server, user="tina") as tina:
        for kind in ("message", "status"):
            tina.ok("subscribe", channel=f"radar-{kind}#acme/{room}")
            bob.call(kind, room, "subscribe")
        bob.call("message", room, "publish", {"a": 1})
        assert tina.event()["data"] == {"value": {"a": 1}, "userData": {"name": "bob"}}
        bob.call("status", room, "set", "busy")
        assert tina.event()["data"] == {"key": "bob", "type": 2, "value": "busy", "userData": {"name": "bob"}}
        own = lambda: any(event.get("op") == "set" and event.get("key") == "bob" for event in bob.events())
        until(own, "bob to receive their own status")
        bob.seen = len(bob.events())
        tina.ok("publish", channel=f"radar-message#acme/{room}", data=[1])
        bob.hears({"op": "publish", "to": scope(room, kind="message"), "value": [1]})
        tina.ok("publish", channel=f"radar-status#acme/{room}", data={"key": "tina", "value": 5})
        bob.hears({"op": "set", "to": scope(room, kind="status"), "value": 5, "key": "tina"})
        assert bob.call("status", room, "get")["value"] == {"bob": "busy", "tina": 5}


def test_a_token_says_who_the_client_is_and_what_it_may_do(production, clients, room):
    token = tokens.token("bob", ALLOW)
    bob = clients("bob", production, auth=token)
    bob.online(room)
    assert bob.presence(room, "get")["value"] == {"bob": 2}
    other = clients("bob", production, account="other", auth=token)
    other.presence(room, "get", answer=False)
    until(lambda: errors(other), "the refusal of another account")
    assert errors(other)[0]["value"] == "auth" and "auth" not in errors(other)[0]["origin"]
    mallory = clients("mallory", production, user="eve", auth=token)
    mallory.presence(room, "set", "online", answer=False)
    until(lambda: errors(mallory), "the refusal of another user's token")
    bare = clients("bare", production)
    bare.presence(room, "get", answer=False)
    until(lambda: errors(bare), "the refusal of a client without a token")
    assert bob.presence(room, "get")["value"] == {"bob": 2}


def test_nobody_sets_the_status_of_another_user(production, clients, room):
    bob = clients("bob", production, auth=tokens.token("bob", ALLOW))
    bob.call("status", room, "set", "busy")
    mallory = clients("mallory", production, user="bob", auth=tokens.token("mallory", ALLOW))
    mallory.call("status", room, "set", "away", answer=False)
    until(lambda: errors(mallory), "the refusal of another user's token")
    with Socket(production, token=tokens.token("mallory", ALLOW)) as native:
        for key in ("bob", 7, None, ["bob"]):
            native.call("publish", channel=f"radar-status#acme/{room}", data={"key": key, "type": 2, "value": "away"})
    assert bob.call("status", room, "get")["value"] == {"bob": "busy"}


def test_a_banned_user_is_refused(production, clients, room):
    # A room has a slash, which a path of the server API would take for its end.
    user = f"eve-{room}".replace("/", "-")
    token = tokens.token(user, ALLOW)
    eve = clients("eve", production, user=user, auth=token)
    eve.online(room)
    address, headers = f"{production.url}/v1/users/{user}/ban", {"authorization": f"Bearer {production.key}"}
    assert httpx.put(address, headers=headers, json={"reason": "spam"}, trust_env=False).status_code == 200
    again = clients("again", production, user=user, auth=token)
    for kind, op in (("presence", "get"), ("status", "get"), ("message", "subscribe")):
        before = len(errors(again))
        again.call(kind, room, op, answer=False)
        until(lambda: len(errors(again)) > before, f"the refusal of {kind} {op}")
    assert httpx.delete(address, headers=headers, trust_env=False).status_code == 200


def test_a_connection_ends_with_its_token(production, clients, room):
    bob = clients("bob", production, auth=tokens.token("bob", ALLOW, ttl=3))
    ann = clients("ann", production, auth=tokens.token("ann", ALLOW))
    ann.presence(room, "subscribe")
    bob.online(room)
    ann.hears(online(room, bob), client_online(room, bob))
    ann.hears(client_offline(room, bob, False), timeout=15)
    ann.hears(offline(room, bob))


def test_a_client_that_does_not_log_in_is_closed(production):
    sid = opened(production)
    begun = time.monotonic()
    answer = engine(production, sid=sid, **HANDSHAKE)
    # Heartbeats come in between; it answers none.
    assert answer.text in ("2", "1") and time.monotonic() - begun < 16
    until(lambda: engine(production, "POST", content="3", sid=sid, **HANDSHAKE).status_code == 400, "the end of the connection", 20)


def test_the_handshake_is_that_of_engine_io(server):
    refused = lambda answer: (answer.status_code, answer.json()["code"])
    assert refused(engine(server, EIO="4", transport="smoke")) == (400, 0)
    assert refused(engine(server, sid="0123456789bcdfgh", **HANDSHAKE)) == (400, 1)
    assert refused(engine(server, "POST", content="4x", **HANDSHAKE)) == (400, 2)
    assert refused(engine(server, EIO="4", transport="websocket")) == (400, 3)
    assert refused(engine(server, EIO="3", transport="polling")) == (400, 5)
    sid = opened(server)
    assert engine(server, "POST", content="4{}", sid=sid, **HANDSHAKE).text == "ok"
    assert refused(engine(server, "POST", content="bAQ==", sid=sid, **HANDSHAKE)) == (400, 3)
    assert refused(engine(server, sid=sid, **HANDSHAKE)) == (400, 1), "a packet that cannot be read ends the connection"


def test_a_payload_is_bounded(server):
    sid = opened(server)
    answer = engine(server, "POST", content="4" + "x" * 80_000, sid=sid, **HANDSHAKE)
    assert answer.status_code == 413


def test_two_polls_at_once_end_the_connection(server):
    sid = opened(server)
    with socket.create_connection(("127.0.0.1", server.port)) as parked:
        parked.sendall(f"GET /engine.io/?EIO=4&transport=polling&sid={sid} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        # The first is parked when the second is refused.
        until(lambda: engine(server, sid=sid, **HANDSHAKE).status_code == 400, "the refusal of the second poll")
        assert engine(server, "POST", content="3", sid=sid, **HANDSHAKE).status_code == 400


def test_a_connection_is_answered_only_to_its_address(server):
    sid = opened(server)
    foreign = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(transport=foreign, trust_env=False) as other:
        answer = other.post(f"{server.url}/engine.io/", params=HANDSHAKE | {"sid": sid}, content="3")
    assert (answer.status_code, answer.json()["code"]) == (400, 1)
    assert engine(server, "POST", content="3", sid=sid, **HANDSHAKE).text == "ok"


def test_a_silent_client_is_lost(room):
    """It polls no more and answers no ping."""
    with Tavern.dev(CONFIG + "[sessions]\nheartbeat_ms = 500\n") as server, Socket(server, user="tina") as tina:
        tina.ok("subscribe", channel=f"radar-presence#acme/{room}", presence=True)
        sid = opened(server)
        request = '4{"op":"set","to":"%s","value":"online","key":"ghost","type":2}' % scope(room)
        assert engine(server, "POST", content=request, sid=sid, **HANDSHAKE).text == "ok"
        seen = [tina.event(20)["event"] for _ in range(4)]
        assert seen == ["user_online", "client_online", "client_offline", "user_offline"]


def test_radar_is_off_unless_it_is_switched_on():
    with Tavern.serve() as server:
        assert engine(server, **HANDSHAKE).status_code == 404
        assert "radar.enabled" in server.run("check", "--config", server.config, "--secret", tokens.SECRET).stdout


def test_open_connections_are_counted(server, clients):
    before = server.metric("tavern_radar_connections")
    bob = clients("bob", server)
    assert server.metric("tavern_radar_connections") == before + 1
    bob.close()
    until(lambda: server.metric("tavern_radar_connections") == before, "the connection to end")


def test_version_0_17_of_the_client(server, room):
    with Runtime("node", "radar_client_017") as runtime:
        ann, bob = RadarClient(runtime, "ann", server), RadarClient(runtime, "bob", server)
        ann.presence(room, "subscribe")
        bob.online(room)
        ann.hears(online(room, bob), client_online(room, bob))
        bob.close()
        ann.hears(client_offline(room, bob, False))
        ann.hears(offline(room, bob))
