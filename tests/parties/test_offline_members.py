"""Members and invited users who are lost, return, time out or say bye; expiry of invites and tickets.

Users are on two servers with short timeouts.
"""
import time

from parties.party_user import plain, session_count
from support.json_client import Socket
from support.process import until


def online(user):
    return {plain(member["user"]): member["online"] for member in user.get()["members"]}


def second_session(users, name, server):
    """Another session of a user, already online."""
    member = users.connect(name, server=server)
    until(lambda: session_count(server, member.user) == 2, "both sessions to be known")
    return member


def test_a_lost_member_stays_in_the_party_and_gets_all_events_on_return(quick_users, combination):
    ann, bob, cid = quick_users.party("ann bob cid")
    bob.drop()
    for member in (ann, cid):
        member.expect("bob offline")
    assert online(ann) == {"ann": True, "bob": False, "cid": True}
    again = quick_users.connect("bob", server=cid.server)
    # A hello does not wait long for the party: on a busy machine it may be without.
    party = again.hello.get("party") or again.get()
    assert [plain(member["user"]) for member in party["members"]] == ["ann", "bob", "cid"]
    for member in (ann, cid):
        member.expect("bob online")
    until(lambda: online(again) == {"ann": True, "bob": True, "cid": True}, "bob to be online")
    # Unacknowledged events are delivered again.
    again.expect("ann invite", "ann invited cid", "cid join")
    # The old deadline no longer applies.
    time.sleep(3.2)
    again.expect_nothing()
    ann.expect_nothing()


def test_a_member_who_does_not_return_leaves_by_timeout(quick_users, combination):
    ann, bob, cid = quick_users.party("ann bob cid")
    began = time.monotonic()
    bob.drop()
    cid.expect("bob offline", "bob leave timeout")
    # The grace period of presence, then that of the party.
    assert time.monotonic() - began >= 0.3 + 0.7
    ann.expect("bob offline", "bob leave timeout")
    again = quick_users.connect("bob")
    assert again.hello["party"] is None
    again.expect("ann invite", "ann invited cid", "cid join", "bob leave timeout")


def test_another_session_keeps_a_member_online(quick_users, combination):
    ann, bob = quick_users.party("ann bob")
    session = second_session(quick_users, "bob", ann.server)
    bob.drop()
    time.sleep(0.8)
    ann.expect_nothing()
    assert online(ann) == {"ann": True, "bob": True}
    session.drop()
    ann.expect("bob offline")


def test_bye_of_the_last_session_leaves_the_party(quick_users, combination):
    ann, bob = quick_users.party("ann bob")
    cid = quick_users.connect("cid")
    ann.invite(cid)
    session = second_session(quick_users, "bob", ann.server)
    bob.bye()
    until(lambda: session_count(ann.server, bob.user) == 1, "the first session to end")
    ann.expect_nothing()
    session.bye()
    ann.expect("bob leave logout")
    assert ann.members() == ["ann"]
    cid.bye()
    [event, _] = ann.expect("cid decline logout", "ann disband empty")
    assert event["error"] == "user not logged"


def test_a_lost_leader_keeps_the_lead_until_the_timeout_then_the_next_online_member_leads(quick_users, combination):
    ann, bob, cid = quick_users.party("ann bob cid")
    bob.drop()
    cid.expect("bob offline")
    ann.drop()
    cid.expect("ann offline")
    assert cid.members() == ["ann", "bob", "cid"]
    bob = quick_users.connect("bob", server=cid.server)
    cid.expect("bob online")
    cid.expect("ann leave timeout", "bob leader")
    again = quick_users.connect("ann", server=cid.server)
    assert again.hello["party"] is None
    assert bob.members() == ["bob", "cid"]


def test_succession_skips_offline_members(quick_users, combination):
    ann, bob, cid = quick_users.party("ann bob cid")
    bob.drop()
    cid.expect("bob offline")
    ann.ok("leave")
    cid.expect("ann leave left", "cid leader")
    assert cid.members() == ["cid", "bob"]
    quick_users.connect("bob", server=cid.server)
    cid.expect("bob online")
    assert cid.members() == ["cid", "bob"]


def test_go_with_a_lost_member_fails_at_once_and_the_party_stays(quick_users, combination):
    ann, bob, cid = quick_users.party("ann bob cid")
    bob.drop()
    ann.expect("bob offline")
    go = ann.ok("go")["go_id"]
    [event] = ann.expect("ann go_failed without bob")
    assert (event["go_id"], event["progress"], event["missing"]) == (go, 201, [bob.user])
    cid.expect("bob offline", "ann go_failed without bob")
    assert (ann.get()["state"], ann.members()) == ("idle", ["ann", "bob", "cid"])


def test_go_is_queued_when_all_members_are_ready(quick_users, combination):
    ann, bob = quick_users.party("ann bob")
    go = ann.ok("go", params={"m": 1})["go_id"]
    bob.expect("ann party_go gathering")
    assert ann.refused("go") == "busy"
    bob.ok("ready", go_id=go)
    bob.ok("ready", go_id=go)
    ann.expect("ann party_go gathering", "bob ready gathering")
    assert ann.get()["state"] == "gathering"
    ann.ok("ready", go_id=go)
    bob.expect("ann ready queued")
    assert bob.get()["state"] == "queued"
    # A queued ticket has no deadline.
    time.sleep(0.9)
    assert bob.get()["state"] == "queued"
    bob.drop()
    ann.expect("bob go_cancel offline", "bob offline")


def test_gathering_times_out_with_the_missing_members(quick_users, combination):
    ann, bob, cid = quick_users.party("ann bob cid")
    go = ann.ok("go")["go_id"]
    bob.ok("ready", go_id=go)
    cid.expect("ann party_go gathering", "bob ready gathering", "ann go_failed without ann,cid")
    ann.expect("ann party_go gathering", "bob ready gathering", "ann go_failed without ann,cid")
    assert cid.get()["state"] == "idle"
    assert cid.refused("ready", go_id=go) == "no_such_go"
    # Again, with another go_id.
    assert ann.ok("go")["go_id"] > go


def test_an_invite_expires_for_both_sides(quick_users, combination):
    ann, bob = quick_users.party("ann bob")
    cid = quick_users.connect("cid")
    number = ann.invite(cid)
    [invite, end] = cid.expect("ann invite", "ann invite_cancel expired")
    assert end["ts"] >= invite["expires_at"] == invite["ts"] + 4000
    ann.expect("cid decline expired")
    bob.expect("ann invited cid", "cid uninvited expired")
    assert cid.refused("accept", party_id=number) == "no_invite"
    assert ann.get()["pending"] == []


def test_a_party_of_one_ends_when_its_invite_expires(quick_users, combination):
    ann, bob = quick_users.connect_all("ann bob")
    number = ann.invite(bob)
    bob.expect("ann invite", "ann invite_cancel expired")
    ann.expect("bob decline expired", "ann disband empty")
    assert ann.get() is None
    assert bob.refused("decline", party_id=number) == "no_such_party"


def test_a_lost_invited_user_keeps_the_invite_until_the_grace_period_ends(quick_users, combination):
    ann, bob = quick_users.connect_all("ann bob")
    ann.invite(bob)
    bob.drop()
    began = time.monotonic()
    ann.expect("bob decline logout", "ann disband empty")
    assert time.monotonic() - began >= 0.25, "not before the grace period ends"


def test_a_session_that_resumes_in_time_causes_no_event(quick_users, combination):
    ann, bob = quick_users.party("ann bob")
    bob.drop()
    with Socket(ann.server, user=bob.user) as socket:
        hello = socket.ok("hello", session=bob.hello["session"], seq=0)
        assert hello["resumed"] is True
        assert hello["party"] == ann.get()
        time.sleep(0.6)
        ann.expect_nothing()
