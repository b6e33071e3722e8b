"""Members and guests who are lost, come back, do not come back, or say goodbye; what time alone does to a party.

People are on two servers; time passes quickly.
"""
import time

from parties.guest import plain, windows
from support.json_client import Socket
from support.process import until


def online(guest):
    return {plain(member["user"]): member["online"] for member in guest.get()["members"]}


def second_window(table, name, server):
    """Another session of somebody, and it is known to be there."""
    guest = table.seat(name, server=server)
    until(lambda: windows(server, guest.user) == 2, "both windows to be known")
    return guest


def test_a_lost_member_keeps_his_seat_and_returns_with_everything(brisk, combination):
    ann, bob, cid = brisk.party("ann bob cid")
    bob.drop()
    for guest in (ann, cid):
        guest.letters("bob offline")
    assert online(ann) == {"ann": True, "bob": False, "cid": True}
    again = brisk.seat("bob", server=cid.server)
    assert [plain(member["user"]) for member in again.hello["party"]["members"]] == ["ann", "bob", "cid"]
    for guest in (ann, cid):
        guest.letters("bob online")
    until(lambda: online(again) == {"ann": True, "bob": True, "cid": True}, "bob to be back")
    # What he never acknowledged comes again.
    again.letters("ann invite", "ann invited cid", "cid join")
    # His old deadline has no meaning any more.
    time.sleep(1.2)
    again.hears_nothing_more()
    ann.hears_nothing_more()


def test_who_does_not_come_back_leaves_by_timeout(brisk, combination):
    ann, bob, cid = brisk.party("ann bob cid")
    began = time.monotonic()
    bob.drop()
    cid.letters("bob offline", "bob leave timeout")
    # The grace of his presence, then that of the party.
    assert time.monotonic() - began >= 0.3 + 0.7
    ann.letters("bob offline", "bob leave timeout")
    again = brisk.seat("bob")
    assert again.hello["party"] is None
    again.letters("ann invite", "ann invited cid", "cid join", "bob leave timeout")


def test_another_window_keeps_a_member_online(brisk, combination):
    ann, bob = brisk.party("ann bob")
    window = second_window(brisk, "bob", ann.server)
    bob.drop()
    time.sleep(0.8)
    ann.hears_nothing_more()
    assert online(ann) == {"ann": True, "bob": True}
    window.drop()
    ann.letters("bob offline")


def test_a_goodbye_of_the_last_window_leaves_the_party(brisk, combination):
    ann, bob = brisk.party("ann bob")
    cid = brisk.seat("cid")
    ann.invite(cid)
    window = second_window(brisk, "bob", ann.server)
    bob.bye()
    until(lambda: windows(ann.server, bob.user) == 1, "the first window to be gone")
    ann.hears_nothing_more()
    window.bye()
    ann.letters("bob leave logout")
    assert ann.members() == ["ann"]
    cid.bye()
    [letter, _] = ann.letters("cid decline logout", "ann disband empty")
    assert letter["error"] == "user not logged"


def test_a_leader_in_grace_keeps_the_lead_and_the_next_one_who_is_online_follows(brisk, combination):
    ann, bob, cid = brisk.party("ann bob cid")
    bob.drop()
    cid.letters("bob offline")
    ann.drop()
    cid.letters("ann offline")
    assert cid.members() == ["ann", "bob", "cid"]
    bob = brisk.seat("bob", server=cid.server)
    cid.letters("bob online")
    cid.letters("ann leave timeout", "bob leader")
    again = brisk.seat("ann", server=cid.server)
    assert again.hello["party"] is None
    assert bob.members() == ["bob", "cid"]


def test_succession_passes_over_who_is_away(brisk, combination):
    ann, bob, cid = brisk.party("ann bob cid")
    bob.drop()
    cid.letters("bob offline")
    ann.ok("leave")
    cid.letters("ann leave left", "cid leader")
    assert cid.members() == ["cid", "bob"]
    brisk.seat("bob", server=cid.server)
    cid.letters("bob online")
    assert cid.members() == ["cid", "bob"]


def test_go_with_somebody_in_grace_fails_at_once_and_the_party_stays(brisk, combination):
    ann, bob, cid = brisk.party("ann bob cid")
    bob.drop()
    ann.letters("bob offline")
    go = ann.ok("go")["go_id"]
    [letter] = ann.letters("ann go_failed without bob")
    assert (letter["go_id"], letter["progress"], letter["missing"]) == (go, 201, [bob.user])
    cid.letters("bob offline", "ann go_failed without bob")
    assert (ann.get()["state"], ann.members()) == ("idle", ["ann", "bob", "cid"])


def test_everybody_says_that_he_is_ready(brisk, combination):
    ann, bob = brisk.party("ann bob")
    go = ann.ok("go", params={"m": 1})["go_id"]
    bob.letters("ann party_go gathering")
    assert ann.refused("go") == "busy"
    bob.ok("ready", go_id=go)
    bob.ok("ready", go_id=go)
    ann.letters("ann party_go gathering", "bob ready gathering")
    assert ann.get()["state"] == "gathering"
    ann.ok("ready", go_id=go)
    bob.letters("ann ready queued")
    assert bob.get()["state"] == "queued"
    # Queued has no deadline.
    time.sleep(0.9)
    assert bob.get()["state"] == "queued"
    bob.drop()
    ann.letters("bob go_cancel offline", "bob offline")


def test_a_gathering_that_takes_too_long_fails_with_who_is_missing(brisk, combination):
    ann, bob, cid = brisk.party("ann bob cid")
    go = ann.ok("go")["go_id"]
    bob.ok("ready", go_id=go)
    cid.letters("ann party_go gathering", "bob ready gathering", "ann go_failed without ann,cid")
    ann.letters("ann party_go gathering", "bob ready gathering", "ann go_failed without ann,cid")
    assert cid.get()["state"] == "idle"
    assert cid.refused("ready", go_id=go) == "no_such_go"
    # And again, with another number.
    assert ann.ok("go")["go_id"] > go


def test_an_invite_expires_for_both_sides(brisk, combination):
    ann, bob = brisk.party("ann bob")
    cid = brisk.seat("cid")
    number = ann.invite(cid)
    [invite, end] = cid.letters("ann invite", "ann invite_cancel expired")
    assert end["ts"] >= invite["expires_at"] == invite["ts"] + 4000
    ann.letters("cid decline expired")
    bob.letters("ann invited cid", "cid uninvited expired")
    assert cid.refused("accept", party_id=number) == "no_invite"
    assert ann.get()["pending"] == []


def test_a_party_of_one_ends_when_its_invite_expires(brisk, combination):
    ann, bob = brisk.seats("ann bob")
    number = ann.invite(bob)
    bob.letters("ann invite", "ann invite_cancel expired")
    ann.letters("bob decline expired", "ann disband empty")
    assert ann.get() is None
    assert bob.refused("decline", party_id=number) == "no_such_party"


def test_a_guest_who_is_lost_keeps_his_invite_until_he_is_gone(brisk, combination):
    ann, bob = brisk.seats("ann bob")
    ann.invite(bob)
    bob.drop()
    began = time.monotonic()
    ann.letters("bob decline logout", "ann disband empty")
    assert time.monotonic() - began >= 0.25, "he is gone when his grace is over"


def test_a_session_that_resumes_in_time_was_never_away(brisk, combination):
    ann, bob = brisk.party("ann bob")
    bob.drop()
    with Socket(ann.server, user=bob.user) as socket:
        hello = socket.ok("hello", session=bob.hello["session"], seq=0)
        assert hello["resumed"] is True
        assert hello["party"] == ann.get()
        time.sleep(0.6)
        ann.hears_nothing_more()
