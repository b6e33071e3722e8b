"""After kill -9: parties, invites with their deadlines, events and request ids survive."""
import contextlib
import time

import pytest

from parties.conftest import Users
from parties.party_user import CLIENTS, plain, summary
from support.process import until

CONFIG = """
[sessions]
resume_ms = 500
[nodes]
heartbeat_ms = 200
lease_ms = 1200
[kinds.user]
grace_ms = 5000
[parties]
invite_ms = 60000
grace_ms = 5000
gather_ms = 1500
require_ready = true
"""


@pytest.fixture
def settings(combination):
    with combination.settings() as settings:
        yield settings


@contextlib.contextmanager
def running_servers(settings, count=2):
    """Servers that are killed and restarted within one test."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(settings.server(CONFIG)) for _ in range(count)]


def kill(servers, others):
    for server in servers:
        server.kill()
    for member in others:
        member.drop()


def shape(party):
    """The party without online flags and version."""
    members = [(plain(member["user"]), member["since"]) for member in party["members"]]
    return party["party_id"], members, party["pending"], party["data"]


def test_parties_invites_events_and_request_ids_survive_kill_9_of_every_server(settings):
    with running_servers(settings) as servers, contextlib.ExitStack() as stack:
        users = Users(servers, stack)
        ann, bob = users.party("ann bob")
        cid, dan = users.connect_all("cid dan")
        number = ann.invite(cid)
        ann.ok("promote", user=bob.user)
        bob.ok("set_data", data={"map": "harbour"})
        reply = bob.ok("invite", user=dan.user, rid="again")
        before = bob.get()
        event = cid.next_event()
        assert event["cmd"] == "invite"
        kill(servers, (ann, bob, cid, dan))
        for server in servers:
            server.start()
        back = users.connect("bob")
        # While the store is slow to start, hello has no party.
        party = back.get()
        assert shape(party) == shape(before)
        # Versions continue: online and offline changes count too.
        assert before["version"] <= party["version"] <= before["version"] + 4
        # Unacknowledged events are delivered again with the same ids.
        again = users.connect("cid")
        assert again.next_event() | {"seq": 0} == event | {"seq": 0}
        assert users.connect("dan").next_event()["cmd"] == "invite"
        # A repeated request is not executed again.
        assert back.ok("invite", user=dan.user, rid="again") == reply
        party = again.ok("accept", party_id=number)["party"]
        assert [plain(member["user"]) for member in party["members"]] == ["bob", "ann", "cid"]
        ann = users.connect("ann")
        until(lambda: all(member["online"] for member in ann.get()["members"]), "all members to be online")
        assert ann.members() == ["bob", "ann", "cid"]


def ends_of_the_go(member, go):
    """Summaries of the events that ended the ticket, read until its leader leaves by timeout."""
    ends = []
    while (event := member.next_event(timeout=15))["cmd"] != "leave":
        if event["cmd"].startswith("go_"):
            assert event["go_id"] == go
            ends.append(summary(event))
    assert event["reason"] == "timeout"
    return ends


@pytest.mark.parametrize("down_s", [0, 1.6])
def test_a_gathering_interrupted_by_a_restart_fails_once(settings, down_s):
    """It fails because of the first missing member or at its deadline; then members who do not return leave."""
    with running_servers(settings) as servers, contextlib.ExitStack() as stack:
        users = Users(servers, stack)
        ann, bob = users.party("ann bob")
        go = ann.ok("go")["go_id"]
        assert bob.next_event()["cmd"] == "party_go"
        kill(servers, (ann, bob))
        time.sleep(down_s)
        for server in servers:
            server.start()
        back = users.connect("bob")
        [end] = ends_of_the_go(back, go)
        assert end == "ann go_failed without ann,bob"
        until(lambda: back.get() is None, "the party to end")


def test_members_of_a_dead_server_time_out_on_the_other(settings):
    with running_servers(settings) as servers, contextlib.ExitStack() as stack:
        users = Users(servers, stack)
        ann, bob = users.party("ann bob")
        cid = users.connect("cid", server=servers[1])
        ann.invite(cid)
        kill(servers[1:], (bob, cid))
        found = [ann.next_event(timeout=15) for _ in range(2)]
        assert sorted((plain(event["uid"]), event["cmd"]) for event in found) == [("bob", "offline"), ("cid", "decline")]
        back = users.connect("bob", server=servers[0])
        assert back.members() == ["ann", "bob"]
        assert ann.next_event(timeout=15)["cmd"] == "online"
        servers[1].start()
        with CLIENTS["socket"](servers[1], back.user) as session:
            assert session.hello["party"] == back.get()
