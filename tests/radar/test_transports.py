"""Every transport of Engine.IO, and clients that lose their connection or their server."""
import pytest

from radar.conftest import pair
from radar.world import RadarClient, client_offline, client_online, offline, online
from support.process import until

POLLING = {"transports": ["polling"], "upgrade": False}
SOCKET = {"transports": ["websocket"]}


@pytest.mark.parametrize("config", [{}, POLLING, SOCKET], ids=["upgrade", "polling", "websocket"])
def test_every_transport(join, room, config):
    ann, bob = join("ann", **config), join("bob", **config)
    expected = "polling" if config is POLLING else "websocket"
    until(lambda: ann.transport() == expected, "the transport")
    ann.presence(room, "subscribe")
    bob.online(room)
    ann.hears(online(room, bob), client_online(room, bob))
    ann.call("message", room, "subscribe")
    text = "x" * 20_000
    bob.call("message", room, "publish", text)
    until(lambda: ann.events(), "a large message")
    assert ann.events()[0]["value"] == text
    ann.seen += 1
    bob.close()
    ann.hears(client_offline(room, bob, False))
    ann.hears(offline(room, bob))


def test_a_client_that_loses_its_connection_restores_itself(join, room):
    ann, bob = join("ann", **SOCKET), join("bob", **SOCKET)
    ann.presence(room, "subscribe")
    bob.call("message", room, "subscribe")
    bob.online(room)
    ann.hears(online(room, bob), client_online(room, bob))
    before = bob.id
    bob.cut()
    # A request in between is queued.
    until(lambda: bob.id != before, "the client to notice")
    bob.call("status", room, "set", "back")
    bob.ids.add(bob.id)
    ann.hears(client_offline(room, bob, False), client_online(room, bob))
    assert ann.call("status", room, "get")["value"] == {"bob": "back"}
    ann.call("message", room, "publish", "hello")
    until(lambda: any(event["op"] == "publish" for event in bob.events()), "the restored subscription")


@pytest.mark.parametrize("subject", ["radar", "sqlite+local", "redis+redis", "postgres+nats"])
@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_clients_of_a_server_that_ends_are_lost_and_come_back(node_runtime, radar_redis, radar_engines, room, subject, end):
    with pair(subject, radar_redis, radar_engines) as (first, second):
        far = RadarClient(node_runtime, "far", second)
        bob = RadarClient(node_runtime, "bob", first)
        cat = RadarClient(node_runtime, "cat", first)
        far.presence(room, "sync", {"version": 2})
        bob.online(room)
        far.hears(online(room, bob), client_online(room, bob))
        cat.online(room)
        far.hears(online(room, cat), client_online(room, cat))
        # Cat does not come back.
        cat.runtime.do("call", name=cat.key, kind="presence", scope="elsewhere", op="get", args=[])
        getattr(first, end)()
        lost = lambda: {event["value"]["clientId"] for event in far.events() if event["op"] == "client_offline"}
        until(lambda: lost() == {bob.key, cat.key}, "both to be lost", 30)
        cat.close()
        gone = lambda: [event for event in far.events() if event["op"] == "offline"]
        until(lambda: len(gone()) == 2, "both users to be offline", 30)
        assert sorted(str(event) for event in gone()) == sorted(str(offline(room, one)) for one in (bob, cat))
        far.seen += len(far.events())
        first.start()
        bob_returns = lambda: [event["op"] for event in far.events()] == ["online", "client_online"]
        until(bob_returns, "bob to be back", 30)
        assert far.events()[0] == online(room, bob)
