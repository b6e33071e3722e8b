"""Limits against spam, people who are shut out for a while, and people who do not want to see somebody's invites."""
import contextlib

import pytest

from parties.conftest import Table
from parties.guest import plain
from support.process import until

# Nothing here waits for a minute or for a reinvite.
CONFIG = """
[nodes]
heartbeat_ms = 300
lease_ms = 2000
[parties]
max_members = 20
max_pending = 3
invites_per_minute = 6
reinvite_ms = 800
block_ms = 1000
invite_ms = 4000
"""


@pytest.fixture(scope="module")
def strict(combination):
    with combination.cluster(2, CONFIG) as servers:
        yield servers


@pytest.fixture
def table(strict):
    with contextlib.ExitStack() as stack:
        yield Table(strict, stack)


def limited(guest, op, **fields):
    """How long a refusal for going too fast says to wait."""
    reply = guest.party(op, **fields)
    assert reply.get("error", {}).get("code") == "rate_limited", reply
    return reply["error"]["retry_after_ms"]


def test_only_so_many_invites_are_open_at_once(table):
    ann, *guests = table.seats("ann bob cid dan eve")
    for guest in guests[:3]:
        number = ann.invite(guest)
    assert 0 < limited(ann, "invite", user=guests[3].user) <= 4000
    # A repeated one is not a new one.
    assert ann.invite(guests[0]) == number
    guests[0].ok("decline", party_id=number)
    ann.invite(guests[3])


def test_only_so_many_invites_in_a_minute(table):
    ann, *guests = table.seats("ann bob cid dan eve fay gus")
    for guest in guests:
        ann.invite(guest)
        ann.ok("cancel_invite", user=guest.user)
    assert 50_000 < limited(ann, "invite", user=guests[0].user) <= 60_000
    # The limit is one of the user, not of a server, and comes before everything about the party.
    window = table.seat("ann", server=guests[0].server)
    assert limited(window, "invite", user=ann.user, party_id=1) <= 60_000


def test_who_has_declined_is_left_alone_for_a_while(table):
    ann, bob = table.party("ann bob")
    cid = table.seat("cid")
    number = ann.invite(cid)
    cid.ok("decline", party_id=number)
    assert 0 < limited(ann, "invite", user=cid.user) <= 800
    # Others may.
    ann.ok("promote", user=bob.user)
    bob.invite(cid)
    bob.ok("cancel_invite", user=cid.user)
    bob.ok("promote", user=ann.user)
    until(lambda: "ok" in ann.party("invite", user=cid.user), "the time to be over", timeout=3)


def test_who_floods_is_shut_out_for_a_while_but_may_go(table):
    ann, bob, *guests = table.seats("ann bob cid dan eve fay")
    inviting = bob.invite(ann)
    for guest in guests[:3]:
        ann.invite(guest)
    for _ in range(10):
        limited(ann, "invite", user=guests[3].user)
    reply = ann.party("invite", user=guests[3].user)
    assert reply["error"]["code"] == "blocked" and 0 < reply["error"]["retry_after_ms"] <= 1000
    assert [plain(member["user"]) for member in reply["error"]["party"]["members"]] == ["ann"]
    for op, fields in (("set_data", {"data": {}}), ("cancel_invite", {"user": guests[0].user}), ("disband", {})):
        assert ann.refused(op, **fields) == "blocked"
    # What cannot be understood comes first.
    assert ann.refused("kick", user=bob.user, message="x" * 300) == "bad_request"
    assert ann.refused("kick") == "bad_request"
    assert ann.refused("accept", party_id=1) == "no_such_party"
    assert ann.refused("decline", party_id=1) == "no_such_party"
    ann.ok("get")
    ann.ok("accept", party_id=inviting)
    ann.ok("leave")
    until(lambda: ann.refused("set_data", data={}) == "not_member", "the block to be over", timeout=4)


def test_a_blocked_inviter_cannot_tell(table):
    ann, bob, cid = table.seats("ann bob cid")
    bob.ok("block", user=ann.user)
    bob.ok("block", user=ann.user)
    number = ann.invite(bob)
    assert [plain(one["user"]) for one in ann.get()["pending"]] == ["bob"]
    assert ann.invite(bob) == number
    bob.hears_nothing_more()
    assert bob.refused("accept", party_id=number) == "no_invite"
    assert bob.refused("decline", party_id=number) == "no_invite"
    # Joining somebody else does not end it either.
    cid.brings(bob)
    assert [plain(one["user"]) for one in ann.get()["pending"]] == ["bob"]
    ann.letters("bob decline expired", "ann disband empty", timeout=6)
    bob.letters("cid invite")
    bob.hears_nothing_more()
    bob.ok("leave")
    bob.ok("unblock", user=ann.user)
    ann.invite(bob)
    assert [bob.letter()["cmd"] for _ in range(1)] == ["invite"]
