"""A bus server that dies and restarts: subscribers get a gap and watchers end up correct. The other suites cover normal
operation on every combination."""
import pytest

from cluster.combination import Combination, Engines
from support.json_client import Socket
from support.process import free_port, until
from support.tavern import Tavern

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

KINDS = ("nats", "redis", "postgres")


@pytest.fixture(params=KINDS)
def world(request):
    """A separate bus server and two Tavern servers on one folder that use it."""
    with Engines() as engines, Combination(f"sqlite+{request.param}", engines).cluster(2, CONFIG) as (a, b):
        yield engines.server(request.param), a, b


def test_after_a_bus_restart_subscribers_get_a_gap_and_watchers_are_correct(world, channel, room):
    bus, a, b = world
    with Socket(b, user="bob") as bob, Socket(b, user="eve") as watcher, Socket(a, user="ann") as ann:
        bob.ok("subscribe", channel=channel)
        watcher.ok("subscribe", channel=room, presence=True)
        ann.ok("publish", channel=channel, data="before")
        assert bob.event()["data"] == "before"
        losses = b.metric("tavern_bus_losses_total")
        bus.kill()
        ann.ok("publish", channel=channel, data="not delivered")
        ann.ok("join", channel=room, state="joined while the bus was down")
        bus.start()
        event = bob.event()
        assert (event["event"], event["channel"]) == ("gap", channel)
        assert b.metric("tavern_bus_losses_total") > losses
        present = lambda server: [user["user"] for user in Socket(server, user="look").ok("who", channel=room)["users"]]
        assert present(b) == ["ann"]
        received = []
        while not any("ann" in str(event) for event in received):
            received.append(watcher.event())
        failed = lambda: a.metric("tavern_bus_failed_total")
        assert failed() >= 1, "failed sends are counted"

        def delivered():
            ann.ok("publish", channel=channel, data="again")
            return [event for event in bob.events_so_far() if event.get("data") == "again"]
        until(delivered, "messages to be delivered again")
        ann.ok("leave", channel=room)
        while "ann" not in str(event := watcher.event()) or "offline" not in event["event"]:
            received.append(event)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_without_its_bus_fails_to_start_with_an_error(kind):
    with pytest.raises(RuntimeError, match="bus"):
        with Tavern.dev(CONFIG, ["--bus", f"{kind}://:sesame@127.0.0.1:{free_port()}"]):
            pass
