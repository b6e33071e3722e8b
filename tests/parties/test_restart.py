"""Servers that are killed: the same parties, invites with their deadlines, letters and requests afterwards."""
import contextlib
import time

import pytest

from parties.conftest import Table
from parties.guest import CLIENTS, plain, words
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
grace_ms = 2500
gather_ms = 1500
require_ready = true
"""


@pytest.fixture
def settings(combination):
    with combination.settings() as settings:
        yield settings


@contextlib.contextmanager
def house(settings, count=2):
    """Servers that are killed and started again within one test."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(settings.server(CONFIG)) for _ in range(count)]


def kill(servers, guests):
    for server in servers:
        server.kill()
    for guest in guests:
        guest.drop()


def shape(party):
    """Everything but who is online and what that cost in versions."""
    members = [(plain(member["user"]), member["since"]) for member in party["members"]]
    return party["party_id"], members, party["pending"], party["data"]


def test_parties_invites_letters_and_requests_survive_kill_9_of_every_server(settings):
    with house(settings) as servers, contextlib.ExitStack() as stack:
        table = Table(servers, stack)
        ann, bob = table.party("ann bob")
        cid, dan = table.seats("cid dan")
        number = ann.invite(cid)
        ann.ok("promote", user=bob.user)
        bob.ok("set_data", data={"map": "harbour"})
        reply = bob.ok("invite", user=dan.user, rid="again")
        before = bob.get()
        letter = cid.letter()
        assert letter["cmd"] == "invite"
        kill(servers, (ann, bob, cid, dan))
        for server in servers:
            server.start()
        back = table.seat("bob")
        assert shape(back.hello["party"]) == shape(before)
        # The versions go on: a change of who is there is one.
        assert before["version"] <= back.hello["party"]["version"] <= before["version"] + 4
        # Letters that nobody had for good come again, with the same numbers.
        again = table.seat("cid")
        assert again.letter() | {"seq": 0} == letter | {"seq": 0}
        assert table.seat("dan").letter()["cmd"] == "invite"
        # A request that was carried out is not carried out again.
        assert back.ok("invite", user=dan.user, rid="again") == reply
        party = again.ok("accept", party_id=number)["party"]
        assert [plain(member["user"]) for member in party["members"]] == ["bob", "ann", "cid"]
        ann = table.seat("ann")
        until(lambda: all(member["online"] for member in ann.get()["members"]), "all to be back")
        assert ann.members() == ["bob", "ann", "cid"]


def ends_of_the_go(guest, go):
    """The words with which a ticket ended, read until its leader has left by timeout."""
    ends = []
    while (letter := guest.letter(timeout=15))["cmd"] != "leave":
        if letter["cmd"].startswith("go_"):
            assert letter["go_id"] == go
            ends.append(words(letter))
    assert letter["reason"] == "timeout"
    return ends


@pytest.mark.parametrize("down_s", [0, 1.6])
def test_a_gathering_that_a_restart_interrupts_ends_once(settings, down_s):
    """It fails, by the first who is missed or by its deadline; then who does not return leaves."""
    with house(settings) as servers, contextlib.ExitStack() as stack:
        table = Table(servers, stack)
        ann, bob = table.party("ann bob")
        go = ann.ok("go")["go_id"]
        assert bob.letter()["cmd"] == "party_go"
        kill(servers, (ann, bob))
        time.sleep(down_s)
        for server in servers:
            server.start()
        back = table.seat("bob")
        [end] = ends_of_the_go(back, go)
        assert end == "ann go_failed without ann,bob"
        until(lambda: back.get() is None, "the party to be over")


def test_one_server_dies_and_its_members_are_looked_after_by_the_other(settings):
    with house(settings) as servers, contextlib.ExitStack() as stack:
        table = Table(servers, stack)
        ann, bob = table.party("ann bob")
        cid = table.seat("cid", server=servers[1])
        ann.invite(cid)
        kill(servers[1:], (bob, cid))
        found = [ann.letter(timeout=15) for _ in range(2)]
        assert sorted((plain(letter["uid"]), letter["cmd"]) for letter in found) == [("bob", "offline"), ("cid", "decline")]
        back = table.seat("bob", server=servers[0])
        assert back.members() == ["ann", "bob"]
        assert ann.letter(timeout=15)["cmd"] == "online"
        servers[1].start()
        with CLIENTS["socket"](servers[1], back.user) as window:
            assert window.hello["party"] == back.get()
