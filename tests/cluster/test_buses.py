"""Two servers on one folder whose words travel over a NATS or a Redis server: everything crosses, and when the server of
the bus dies and comes back, listeners are told of the gap and watchers end with the truth."""
import pytest

from cluster.conftest import cluster
from support.json_client import Socket
from support.nats_server import NatsServer
from support.process import until
from support.redis_server import RedisServer
from support.resp import RespConnection

CONFIG = """
[sessions]
resume_ms = 500
drain_ms = 1500
[nodes]
heartbeat_ms = 200
lease_ms = 1500
[kinds.game]
grace_ms = 1500
"""

KINDS = {"nats": NatsServer, "redis": RedisServer}


@pytest.fixture(scope="module", params=KINDS)
def world(request):
    """The server of the bus, and two servers that use it."""
    with KINDS[request.param]() as bus, cluster(2, CONFIG, ["--bus", bus.url]) as (a, b):
        yield bus, a, b


@pytest.fixture
def room(channel):
    return channel.replace("room#", "game#")


def words(event):
    status = event["status"]
    return " ".join(["online" if status["online"] else "offline", "+".join(status["channels"])])


def test_messages_cross_once_and_in_order(world, channel):
    _, a, b = world
    with Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
        bob.ok("subscribe", channel=channel)
        bob.ok("subscribe", pattern=channel[:-1] + "*")
        redis = RespConnection(b.resp_port)
        redis.call("SUBSCRIBE", channel)
        for n in range(200):
            ann.ok("publish", channel=channel, data=n)
        assert [redis.read()[2] for _ in range(200)] == [str(n).encode() for n in range(200)]
        assert [bob.event()["data"] for _ in range(200)] == [*range(200)], "once, however many reasons to carry it"
        assert bob.events_so_far() == [] and redis.frames_so_far() == []
        assert b.metric("tavern_bus_received_total") >= 200


def test_watchers_on_both_servers_hear_the_same(world, room):
    _, a, b = world
    with Socket(a, user="w1") as one, Socket(b, user="w2") as two, Socket(a, user="ann") as ann, Socket(b, user="bob") as bob:
        for watcher in (one, two):
            watcher.ok("subscribe", channel=room, presence=True)
        ann.ok("join", channel=room, state=1)
        bob.ok("join", channel=room)
        ann.ok("update", channel=room, state=2)
        bob.ok("leave", channel=room)
        expected = [("user_online", "ann"), ("client_online", "ann"), ("user_online", "bob"), ("client_online", "bob"),
                    ("client_updated", "ann"), ("client_offline", "bob"), ("user_offline", "bob")]
        for watcher in (one, two):
            assert [(event["event"], event["user"]) for event in (watcher.event() for _ in expected)] == expected
        assert one.ok("who", channel=room) == two.ok("who", channel=room)


def test_followers_on_the_other_server_hear_of_it(world, room):
    _, a, b = world
    user = room.replace("game#", "followed-")
    with Socket(b, user=f"fan-of-{user}") as fan:
        fan.ok("follow", user=user)
        assert words(fan.event()) == "offline "
        with Socket(a, user=user) as followed:
            followed.ok("join", channel=room)
            assert [words(fan.event()) for _ in range(2)] == ["online ", f"online {room}"]


def test_a_session_moves_to_the_other_server(world, channel):
    _, a, b = world
    old = Socket(a, user="ann")
    old.ok("subscribe", channel=channel)
    with Socket(b, user="bob") as bob, Socket(b, user="ann") as new:
        bob.ok("publish", channel=channel, data="one")
        assert old.event()["data"] == "one"
        assert new.ok("hello", session=old.hello["session"], seq=1)["resumed"] is True
        frames, code = old.closing()
        assert frames[-1] == {"event": "superseded"} and code == 4000
        for server in (a, b):
            with Socket(server, user="cid") as cid:
                cid.ok("publish", channel=channel, data=server.port)
        assert {new.event()["data"] for _ in range(2)} == {a.port, b.port}
        assert new.events_so_far() == []


def test_a_bus_that_died_and_came_back(world, channel, room):
    bus, a, b = world
    with Socket(b, user="bob") as bob, Socket(b, user="eve") as watcher, Socket(a, user="ann") as ann:
        bob.ok("subscribe", channel=channel)
        watcher.ok("subscribe", channel=room, presence=True)
        ann.ok("publish", channel=channel, data="before")
        assert bob.event()["data"] == "before"
        losses = b.metric("tavern_bus_losses_total")
        bus.kill()
        ann.ok("publish", channel=channel, data="nobody hears this")
        ann.ok("join", channel=room, state="joined in the dark")
        bus.start()
        event = bob.event()
        assert (event["event"], event["channel"]) == ("gap", channel)
        assert b.metric("tavern_bus_losses_total") > losses
        present = lambda server: [user["user"] for user in Socket(server, user="look").ok("who", channel=room)["users"]]
        assert present(b) == ["ann"]
        heard = []
        while not any("ann" in str(event) for event in heard):
            heard.append(watcher.event())
        failed = lambda: a.metric("tavern_bus_failed_total")
        assert failed() >= 1, "what could not be carried was counted"

        def carried():
            ann.ok("publish", channel=channel, data="again")
            return [event for event in bob.events_so_far() if event.get("data") == "again"]
        until(carried, "messages cross again")
        ann.ok("leave", channel=room)
        while "ann" not in str(event := watcher.event()) or "offline" not in event["event"]:
            heard.append(event)


def test_a_server_without_its_bus_does_not_start_and_says_so(channel):
    from support.process import free_port
    for scheme in ("nats", "redis"):
        with pytest.raises(RuntimeError, match="bus"):
            with cluster(1, CONFIG, ["--bus", f"{scheme}://:sesame@127.0.0.1:{free_port()}"]):
                pass
