"""Every command of parties: what it answers, who is told what, and what the party is afterwards."""
import time

from parties.guest import plain, words


def pending(guest):
    return [(plain(one["user"]), plain(one["by"])) for one in guest.get()["pending"]]


def test_the_first_invite_makes_a_party_and_a_repeated_one_is_only_acknowledged(table):
    ann, bob = table.seats("ann bob")
    before = time.time() * 1000
    number = ann.invite(bob)
    assert 0 < number < 2**53
    party = ann.get()
    assert (party["party_id"], party["version"], party["state"], party["data"]) == (number, 1, "forming", {})
    assert (ann.members(), pending(ann)) == (["ann"], [("bob", "ann")])
    [letter] = bob.letters("ann invite")
    assert letter["party_id"] == number and letter["version"] == 1 and letter["server"]
    assert letter["expires_at"] == party["pending"][0]["expires_at"]
    assert 55_000 < letter["expires_at"] - before < 70_000
    assert ann.invite(bob) == number
    assert ann.get() == party
    bob.hears_nothing_more()
    ann.hears_nothing_more()
    assert bob.get() is None


def test_a_pending_invite_is_acknowledged_also_when_the_party_is_full(table):
    ann, bob, cid, dan, eve = table.seats("ann bob cid dan eve")
    for guest in (bob, cid, dan):
        ann.invite(guest)
    version = ann.get()["version"]
    ann.invite(dan)
    assert ann.get()["version"] == version
    assert ann.refused("invite", user=eve.user) == "party_full"
    eve.hears_nothing_more()


def test_a_cancelled_invite_is_told_to_the_guest_and_ends_a_party_of_one(table):
    ann, bob = table.seats("ann bob")
    number = ann.invite(bob)
    ann.ok("cancel_invite", user=bob.user)
    bob.letters("ann invite", "ann invite_cancel cancelled")
    ann.letters("ann disband empty")
    assert ann.get() is None
    assert bob.refused("accept", party_id=number) == "no_such_party"


def test_accept_joins_and_tells_the_inviter_and_the_others(table):
    ann, bob = table.party("ann bob")
    cid = table.seat("cid")
    number = ann.invite(cid)
    reply = cid.ok("accept", party_id=number)["party"]
    assert [plain(member["user"]) for member in reply["members"]] == ["ann", "bob", "cid"]
    assert [member["online"] for member in reply["members"]] == [True] * 3
    assert (reply["state"], reply["pending"]) == ("idle", [])
    cid.letters("ann invite")
    bob.letters("ann invited cid", "cid join")
    ann.letters("cid accept")
    for guest in (ann, bob, cid):
        assert guest.get() == reply
        guest.hears_nothing_more()


def test_accepting_declines_the_other_invites_and_frees_their_seats(table):
    ann, bob = table.party("ann bob")
    cid, dan = table.seats("cid dan")
    first, second = ann.invite(dan), cid.invite(dan)
    assert first != second
    dan.ok("accept", party_id=second)
    dan.letters("ann invite", "cid invite", "ann invite_cancel joined_other_party")
    cid.letters("dan accept")
    ann.letters("dan decline joined_other_party")
    bob.letters("ann invited dan", "dan uninvited joined_other_party")
    assert pending(ann) == []
    assert dan.refused("accept", party_id=first) == "user_in_party"


def test_accepting_ends_ones_own_forming_party_and_its_guests_are_told(table):
    ann, bob, cid = table.seats("ann bob cid")
    own = bob.invite(cid)
    number = ann.invite(bob)
    bob.ok("accept", party_id=number)
    cid.letters("bob invite", "bob invite_cancel joined_other_party")
    assert words(bob.letter()) == "ann invite"
    found = {words(bob.letter()) for _ in range(2)}
    assert found == {"cid decline joined_other_party", "bob disband empty"}
    assert cid.refused("accept", party_id=own) == "no_such_party"
    assert bob.members() == ["ann", "bob"]


def test_two_people_who_invite_each_other_end_in_one_party(table):
    ann, bob = table.seats("ann bob")
    hers, his = ann.invite(bob), bob.invite(ann)
    bob.ok("accept", party_id=hers)
    reply = ann.party("accept", party_id=his)
    assert reply["error"]["code"] == "no_such_party"
    assert [plain(member["user"]) for member in reply["error"]["party"]["members"]] == ["ann", "bob"]
    assert bob.get() == ann.get()


def test_a_declined_invite_frees_its_seat_and_says_why(table):
    ann, bob = table.party("ann bob")
    cid = table.seat("cid")
    number = ann.invite(cid)
    cid.ok("decline", party_id=number, message="another time")
    ann.letters('cid decline declined: "another time"')
    bob.letters("ann invited cid", "cid uninvited declined")
    assert pending(ann) == []
    cid.letters("ann invite")
    cid.hears_nothing_more()


def test_a_decline_goes_to_the_leader_when_the_inviter_has_left(table):
    ann, bob, cid = table.party("ann bob cid")
    dan = table.seat("dan")
    number = ann.invite(dan)
    ann.ok("leave")
    dan.ok("decline", party_id=number)
    bob.letters("ann invited dan", "ann leave left", "bob leader", "dan decline declined")
    cid.letters("ann invited dan", "ann leave left", "bob leader", "dan uninvited declined")
    ann.hears_nothing_more()


def test_a_kick_is_told_to_the_target_and_to_the_rest(table):
    ann, bob, cid = table.party("ann bob cid")
    ann.ok("kick", user=bob.user, message="go home")
    bob.letters('ann kick kicked: "go home"')
    ann.letters('bob leave kicked by ann: "go home"')
    cid.letters('bob leave kicked by ann: "go home"')
    assert (ann.members(), bob.get()) == (["ann", "cid"], None)
    bob.hears_nothing_more()


def test_when_the_leader_leaves_the_next_one_leads_and_invites_stay(table):
    ann, bob, cid = table.party("ann bob cid")
    dan = table.seat("dan")
    number = ann.invite(dan)
    ann.ok("leave", message="tea")
    bob.letters("ann invited dan", 'ann leave left: "tea"', "bob leader")
    assert (bob.members(), pending(bob)) == (["bob", "cid"], [("dan", "ann")])
    dan.ok("accept", party_id=number)
    assert dan.members() == ["bob", "cid", "dan"]
    assert ann.get() is None


def test_the_last_one_is_told_that_the_party_is_over(table):
    ann, bob = table.party("ann bob")
    number = ann.get()["party_id"]
    bob.ok("leave")
    letters = ann.letters("bob leave left", "ann disband empty")
    assert [letter["version"] for letter in letters] == [3, 4]
    assert ann.get() is None
    assert ann.invite(bob) > number, "a number never returns"


def test_promote_moves_a_member_to_the_front(table):
    ann, bob, cid = table.party("ann bob cid")
    ann.ok("promote", user=cid.user)
    for guest in (ann, bob, cid):
        guest.letters("cid leader by ann")
    assert bob.members() == ["cid", "ann", "bob"]
    assert ann.refused("promote", user=bob.user) == "not_leader"
    cid.ok("kick", user=ann.user)


def test_disband_tells_everybody(table):
    ann, bob, cid = table.party("ann bob cid")
    dan = table.seat("dan")
    ann.invite(dan)
    ann.ok("disband", message="enough")
    dan.letters("ann invite", "ann invite_cancel disbanded")
    ann.letters("dan decline disbanded", 'ann disband disbanded: "enough"')
    for guest in (bob, cid):
        guest.letters("ann invited dan", "dan uninvited disbanded", 'ann disband disbanded: "enough"')
    assert [guest.get() for guest in (ann, bob, cid)] == [None] * 3


def test_data_is_replaced_and_the_same_again_is_no_change(table):
    ann, bob = table.party("ann bob")
    ann.ok("set_data", data={"map": "harbour", "seats": [1, 2]})
    [letter] = bob.letters("ann data")
    assert letter["data"] == {"map": "harbour", "seats": [1, 2]}
    ann.ok("set_data", data={"map": "harbour", "seats": [1, 2]})
    assert bob.get()["version"] == letter["version"]
    ann.ok("set_data", data={})
    bob.letters("ann data")
    assert ann.get()["data"] == {}
    bob.hears_nothing_more()


def test_go_freezes_the_members_and_everything_that_would_change_them_is_busy(table):
    ann, bob = table.party("ann bob")
    cid = table.seat("cid")
    ann.invite(cid)
    go = ann.ok("go", params={"mode": "ranked"})["go_id"]
    cid.letters("ann invite", "ann invite_cancel party_queued")
    ann.letters("cid decline party_queued", "ann party_go queued")
    _, _, letter = bob.letters("ann invited cid", "cid uninvited party_queued", "ann party_go queued")
    assert letter["go_id"] == go and letter["params"] == {"mode": "ranked"}
    assert letter["members"] == [ann.user, bob.user]
    party = bob.get()
    assert (party["state"], party["go_id"], party["pending"]) == ("queued", go, [])
    for op, fields in (("invite", {"user": cid.user}), ("go", {}), ("promote", {"user": bob.user})):
        assert ann.refused(op, **fields) == "busy"
    bob.ok("ready", go_id=go)
    assert bob.refused("ready", go_id=go + 100) == "no_such_go"
    ann.ok("cancel_go")
    bob.letters("ann go_cancel cancelled")
    assert bob.get()["state"] == "idle" and "go_id" not in bob.get()
    assert ann.refused("cancel_go") == "no_such_go"


def test_a_ticket_ends_with_whoever_leaves_or_is_kicked(table):
    ann, bob, cid = table.party("ann bob cid")
    ann.ok("go")
    bob.ok("leave")
    cid.letters("ann party_go queued", "bob go_cancel left", "bob leave left")
    assert cid.get()["state"] == "idle"
    ann.ok("go")
    ann.ok("kick", user=cid.user)
    ann.letters("ann party_go queued", "bob go_cancel left", "bob leave left", "ann party_go queued", "cid go_cancel kicked",
                "cid leave kicked by ann", "ann disband empty")
    cid.letters("ann party_go queued", "cid go_cancel kicked", "ann kick kicked")


def test_members_talk_and_others_do_not_hear(table):
    ann, bob, cid = table.party("ann bob cid")
    number = ann.get()["party_id"]

    def heard(guest):
        while (event := guest.receive(5))["event"] != "message":
            pass
        return event["channel"], event["data"], plain(event["from"]["user"])

    bob.ok("say", data={"text": "hi"})
    for guest in (ann, cid):
        assert heard(guest) == (f"party#{number}", {"text": "hi"}, "bob")
    cid.ok("leave")
    cid.hears_nothing_more()
    assert cid.refused("say", data="x") == "not_member"
