"""Limits against spam, temporary blocks, and blocked inviters."""
import contextlib

import pytest

from parties.conftest import Users
from parties.party_user import plain
from support.process import until

# Short times, so that no test waits for a minute.
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
def users(strict):
    with contextlib.ExitStack() as stack:
        yield Users(strict, stack)


def limited(member, op, **fields):
    """The retry_after_ms of a rate-limit error."""
    reply = member.party(op, **fields)
    assert reply.get("error", {}).get("code") == "rate_limited", reply
    return reply["error"]["retry_after_ms"]


def test_pending_invites_are_limited(users):
    ann, *others = users.connect_all("ann bob cid dan eve")
    for member in others[:3]:
        number = ann.invite(member)
    assert 0 < limited(ann, "invite", user=others[3].user) <= 4000
    # A repeated invite does not count.
    assert ann.invite(others[0]) == number
    others[0].ok("decline", party_id=number)
    ann.invite(others[3])


def test_invites_per_minute_are_limited(users):
    ann, *others = users.connect_all("ann bob cid dan eve fay gus")
    for member in others:
        ann.invite(member)
        ann.ok("cancel_invite", user=member.user)
    assert 50_000 < limited(ann, "invite", user=others[0].user) <= 60_000
    # The limit is per user, not per server, and is checked before the party.
    session = users.connect("ann", server=others[0].server)
    assert limited(session, "invite", user=ann.user, party_id=1) <= 60_000


def test_a_user_who_declined_cannot_be_invited_again_at_once(users):
    ann, bob = users.party("ann bob")
    cid = users.connect("cid")
    number = ann.invite(cid)
    cid.ok("decline", party_id=number)
    assert 0 < limited(ann, "invite", user=cid.user) <= 800
    # Other users may invite them.
    ann.ok("promote", user=bob.user)
    bob.invite(cid)
    bob.ok("cancel_invite", user=cid.user)
    bob.ok("promote", user=ann.user)
    until(lambda: "ok" in ann.party("invite", user=cid.user), "reinvite_ms to pass", timeout=3)


def test_a_flooding_user_is_blocked_for_a_while_but_may_leave(users):
    ann, bob, *others = users.connect_all("ann bob cid dan eve fay")
    inviting = bob.invite(ann)
    for member in others[:3]:
        ann.invite(member)
    for _ in range(10):
        limited(ann, "invite", user=others[3].user)
    reply = ann.party("invite", user=others[3].user)
    assert reply["error"]["code"] == "blocked" and 0 < reply["error"]["retry_after_ms"] <= 1000
    assert [plain(member["user"]) for member in reply["error"]["party"]["members"]] == ["ann"]
    for op, fields in (("set_data", {"data": {}}), ("cancel_invite", {"user": others[0].user}), ("disband", {})):
        assert ann.refused(op, **fields) == "blocked"
    # Malformed commands are checked first.
    assert ann.refused("kick", user=bob.user, message="x" * 300) == "bad_request"
    assert ann.refused("kick") == "bad_request"
    assert ann.refused("accept", party_id=1) == "no_such_party"
    assert ann.refused("decline", party_id=1) == "no_such_party"
    ann.ok("get")
    ann.ok("accept", party_id=inviting)
    ann.ok("leave")
    until(lambda: ann.refused("set_data", data={}) == "not_member", "the block to end", timeout=4)


def test_a_blocked_inviter_cannot_see_the_block(users):
    ann, bob, cid = users.connect_all("ann bob cid")
    bob.ok("block", user=ann.user)
    bob.ok("block", user=ann.user)
    number = ann.invite(bob)
    assert [plain(one["user"]) for one in ann.get()["pending"]] == ["bob"]
    assert ann.invite(bob) == number
    bob.expect_nothing()
    assert bob.refused("accept", party_id=number) == "no_invite"
    assert bob.refused("decline", party_id=number) == "no_invite"
    # Joining another party does not end the block either.
    cid.invite_and_accept(bob)
    assert [plain(one["user"]) for one in ann.get()["pending"]] == ["bob"]
    ann.expect("bob decline expired", "ann disband empty", timeout=6)
    bob.expect("cid invite")
    bob.expect_nothing()
    bob.ok("leave")
    bob.ok("unblock", user=ann.user)
    ann.invite(bob)
    assert [bob.next_event()["cmd"] for _ in range(1)] == ["invite"]
