"""`tavern.presence`: users going online and offline are events for services, one per transition with any number of nodes."""
import contextlib

from cluster.combination import Combination, Engines
from events.conftest import client
from events.topics_api import pull, put
from support.json_client import Socket, connect_online
from support.process import until

CONFIG = """
[sessions]
resume_ms = 200
[kinds.user]
grace_ms = 300
"""


def transitions(api, name="people"):
    events = pull(api, name, after=0)["events"]
    return [(event["type"], event["data"]["user"], event["data"].get("reason")) for event in events]


def windows(api, user):
    there = api.get(f"/v1/channels/user%23{user}/presence").json()
    return sum(len(one["clients"]) for one in there["users"])


def test_each_transition_is_one_event_on_three_nodes():
    with Engines() as engines, Combination("sqlite+local", engines).cluster(3, CONFIG) as servers:
        with contextlib.ExitStack() as stack:
            apis = [stack.enter_context(client(server, server.key)) for server in servers]
            put(apis[0], "people", topics=["tavern.presence"], pull=True)
            # Each node knows the subscription once its own users are reported.
            for n, server in enumerate(servers):
                def reported(n=n, server=server):
                    connect_online(server, f"probe{n}").close()
                    return any(user == f"probe{n}" for _, user, _ in transitions(apis[0]))
                until(reported, f"node {n} to report its users", timeout=15)
            # Two sessions on two nodes are one user: one online and one offline event.
            one, two = connect_online(servers[0], "ann"), connect_online(servers[1], "ann")
            until(lambda: windows(apis[2], "ann") == 2, "both sessions to be known")
            one.ok("bye")
            two.drop()

            def of_ann():
                return [(kind, reason) for kind, user, reason in transitions(apis[2]) if user == "ann"]

            until(lambda: len(of_ann()) >= 2, "ann to be offline", timeout=15)
            assert of_ann() == [("online", None), ("offline", "lost")]
            with Socket(servers[2], user="bob") as bob:
                until(lambda: ("online", "bob", None) in transitions(apis[1]), "an event about bob")
                bob.ok("bye")
            until(lambda: ("offline", "bob", "bye") in transitions(apis[1]), "an event about bob")
