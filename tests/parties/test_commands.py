"""Every party command: its reply, the events of each user, and the party afterwards."""
import time

from parties.party_user import plain, summary


def pending(member):
    return [(plain(one["user"]), plain(one["by"])) for one in member.get()["pending"]]


def test_the_first_invite_creates_a_party_and_a_repeated_one_changes_nothing(users):
    ann, bob = users.connect_all("ann bob")
    before = time.time() * 1000
    number = ann.invite(bob)
    assert 0 < number < 2**53
    party = ann.get()
    assert (party["party_id"], party["version"], party["state"], party["data"]) == (number, 1, "forming", {})
    assert (ann.members(), pending(ann)) == (["ann"], [("bob", "ann")])
    [event] = bob.expect("ann invite")
    assert event["party_id"] == number and event["version"] == 1 and event["server"]
    assert event["expires_at"] == party["pending"][0]["expires_at"]
    assert 55_000 < event["expires_at"] - before < 70_000
    assert ann.invite(bob) == number
    assert ann.get() == party
    bob.expect_nothing()
    ann.expect_nothing()
    assert bob.get() is None


def test_a_repeated_invite_succeeds_even_when_the_party_is_full(users):
    ann, bob, cid, dan, eve = users.connect_all("ann bob cid dan eve")
    for member in (bob, cid, dan):
        ann.invite(member)
    version = ann.get()["version"]
    ann.invite(dan)
    assert ann.get()["version"] == version
    assert ann.refused("invite", user=eve.user) == "party_full"
    eve.expect_nothing()


def test_a_cancelled_invite_notifies_the_invited_user_and_ends_a_party_of_one(users):
    ann, bob = users.connect_all("ann bob")
    number = ann.invite(bob)
    ann.ok("cancel_invite", user=bob.user)
    bob.expect("ann invite", "ann invite_cancel cancelled")
    ann.expect("ann disband empty")
    assert ann.get() is None
    assert bob.refused("accept", party_id=number) == "no_such_party"


def test_accept_joins_and_notifies_inviter_and_members(users):
    ann, bob = users.party("ann bob")
    cid = users.connect("cid")
    number = ann.invite(cid)
    reply = cid.ok("accept", party_id=number)["party"]
    assert [plain(member["user"]) for member in reply["members"]] == ["ann", "bob", "cid"]
    assert [member["online"] for member in reply["members"]] == [True] * 3
    assert (reply["state"], reply["pending"]) == ("idle", [])
    cid.expect("ann invite")
    bob.expect("ann invited cid", "cid join")
    ann.expect("cid accept")
    for member in (ann, bob, cid):
        assert member.get() == reply
        member.expect_nothing()


def test_accepting_declines_other_invites_and_frees_their_seats(users):
    ann, bob = users.party("ann bob")
    cid, dan = users.connect_all("cid dan")
    first, second = ann.invite(dan), cid.invite(dan)
    assert first != second
    dan.ok("accept", party_id=second)
    dan.expect("ann invite", "cid invite", "ann invite_cancel joined_other_party")
    cid.expect("dan accept")
    ann.expect("dan decline joined_other_party")
    bob.expect("ann invited dan", "dan uninvited joined_other_party")
    assert pending(ann) == []
    assert dan.refused("accept", party_id=first) == "user_in_party"


def test_accepting_ends_the_users_own_forming_party_and_cancels_its_invites(users):
    ann, bob, cid = users.connect_all("ann bob cid")
    own = bob.invite(cid)
    number = ann.invite(bob)
    bob.ok("accept", party_id=number)
    cid.expect("bob invite", "bob invite_cancel joined_other_party")
    assert summary(bob.next_event()) == "ann invite"
    found = {summary(bob.next_event()) for _ in range(2)}
    assert found == {"cid decline joined_other_party", "bob disband empty"}
    assert cid.refused("accept", party_id=own) == "no_such_party"
    assert bob.members() == ["ann", "bob"]


def test_mutual_invites_end_in_one_party(users):
    ann, bob = users.connect_all("ann bob")
    ann_party, bob_party = ann.invite(bob), bob.invite(ann)
    bob.ok("accept", party_id=ann_party)
    reply = ann.party("accept", party_id=bob_party)
    assert reply["error"]["code"] == "no_such_party"
    assert [plain(member["user"]) for member in reply["error"]["party"]["members"]] == ["ann", "bob"]
    assert bob.get() == ann.get()


def test_a_declined_invite_frees_its_seat_and_carries_the_message(users):
    ann, bob = users.party("ann bob")
    cid = users.connect("cid")
    number = ann.invite(cid)
    cid.ok("decline", party_id=number, message="another time")
    ann.expect('cid decline declined: "another time"')
    bob.expect("ann invited cid", "cid uninvited declined")
    assert pending(ann) == []
    cid.expect("ann invite")
    cid.expect_nothing()


def test_a_decline_is_sent_to_the_leader_when_the_inviter_has_left(users):
    ann, bob, cid = users.party("ann bob cid")
    dan = users.connect("dan")
    number = ann.invite(dan)
    ann.ok("leave")
    dan.ok("decline", party_id=number)
    bob.expect("ann invited dan", "ann leave left", "bob leader", "dan decline declined")
    cid.expect("ann invited dan", "ann leave left", "bob leader", "dan uninvited declined")
    ann.expect_nothing()


def test_a_kick_notifies_the_target_and_the_other_members(users):
    ann, bob, cid = users.party("ann bob cid")
    ann.ok("kick", user=bob.user, message="go home")
    bob.expect('ann kick kicked: "go home"')
    ann.expect('bob leave kicked by ann: "go home"')
    cid.expect('bob leave kicked by ann: "go home"')
    assert (ann.members(), bob.get()) == (["ann", "cid"], None)
    bob.expect_nothing()


def test_when_the_leader_leaves_the_next_member_leads_and_invites_stay(users):
    ann, bob, cid = users.party("ann bob cid")
    dan = users.connect("dan")
    number = ann.invite(dan)
    ann.ok("leave", message="tea")
    bob.expect("ann invited dan", 'ann leave left: "tea"', "bob leader")
    assert (bob.members(), pending(bob)) == (["bob", "cid"], [("dan", "ann")])
    dan.ok("accept", party_id=number)
    assert dan.members() == ["bob", "cid", "dan"]
    assert ann.get() is None


def test_the_last_member_gets_a_disband_event(users):
    ann, bob = users.party("ann bob")
    number = ann.get()["party_id"]
    bob.ok("leave")
    events = ann.expect("bob leave left", "ann disband empty")
    assert [event["version"] for event in events] == [3, 4]
    assert ann.get() is None
    assert ann.invite(bob) > number, "party ids are never reused"


def test_promote_moves_a_member_to_the_front(users):
    ann, bob, cid = users.party("ann bob cid")
    ann.ok("promote", user=cid.user)
    for member in (ann, bob, cid):
        member.expect("cid leader by ann")
    assert bob.members() == ["cid", "ann", "bob"]
    assert ann.refused("promote", user=bob.user) == "not_leader"
    cid.ok("kick", user=ann.user)


def test_disband_notifies_all_members_and_invited_users(users):
    ann, bob, cid = users.party("ann bob cid")
    dan = users.connect("dan")
    ann.invite(dan)
    ann.ok("disband", message="enough")
    dan.expect("ann invite", "ann invite_cancel disbanded")
    ann.expect("dan decline disbanded", 'ann disband disbanded: "enough"')
    for member in (bob, cid):
        member.expect("ann invited dan", "dan uninvited disbanded", 'ann disband disbanded: "enough"')
    assert [member.get() for member in (ann, bob, cid)] == [None] * 3


def test_set_data_replaces_data_and_equal_data_is_no_change(users):
    ann, bob = users.party("ann bob")
    ann.ok("set_data", data={"map": "harbour", "seats": [1, 2]})
    [event] = bob.expect("ann data")
    assert event["data"] == {"map": "harbour", "seats": [1, 2]}
    ann.ok("set_data", data={"map": "harbour", "seats": [1, 2]})
    assert bob.get()["version"] == event["version"]
    ann.ok("set_data", data={})
    bob.expect("ann data")
    assert ann.get()["data"] == {}
    bob.expect_nothing()


def test_go_freezes_the_members_and_commands_that_change_them_fail_with_busy(users):
    ann, bob = users.party("ann bob")
    cid = users.connect("cid")
    ann.invite(cid)
    go = ann.ok("go", params={"mode": "ranked"})["go_id"]
    cid.expect("ann invite", "ann invite_cancel party_queued")
    ann.expect("cid decline party_queued", "ann party_go queued")
    _, _, event = bob.expect("ann invited cid", "cid uninvited party_queued", "ann party_go queued")
    assert event["go_id"] == go and event["params"] == {"mode": "ranked"}
    assert event["members"] == [ann.user, bob.user]
    party = bob.get()
    assert (party["state"], party["go_id"], party["pending"]) == ("queued", go, [])
    for op, fields in (("invite", {"user": cid.user}), ("go", {}), ("promote", {"user": bob.user})):
        assert ann.refused(op, **fields) == "busy"
    bob.ok("ready", go_id=go)
    assert bob.refused("ready", go_id=go + 100) == "no_such_go"
    ann.ok("cancel_go")
    bob.expect("ann go_cancel cancelled")
    assert bob.get()["state"] == "idle" and "go_id" not in bob.get()
    assert ann.refused("cancel_go") == "no_such_go"


def test_a_ticket_ends_when_a_member_leaves_or_is_kicked(users):
    ann, bob, cid = users.party("ann bob cid")
    ann.ok("go")
    bob.ok("leave")
    cid.expect("ann party_go queued", "bob go_cancel left", "bob leave left")
    assert cid.get()["state"] == "idle"
    ann.ok("go")
    ann.ok("kick", user=cid.user)
    ann.expect("ann party_go queued", "bob go_cancel left", "bob leave left", "ann party_go queued", "cid go_cancel kicked",
                "cid leave kicked by ann", "ann disband empty")
    cid.expect("ann party_go queued", "cid go_cancel kicked", "ann kick kicked")


def test_party_messages_reach_members_only(users):
    ann, bob, cid = users.party("ann bob cid")
    number = ann.get()["party_id"]

    def received(member):
        while (event := member.receive(5))["event"] != "message":
            pass
        return event["channel"], event["data"], plain(event["from"]["user"])

    bob.ok("say", data={"text": "hi"})
    for member in (ann, cid):
        assert received(member) == (f"party#{number}", {"text": "hi"}, "bob")
    cid.ok("leave")
    cid.expect_nothing()
    assert cid.refused("say", data="x") == "not_member"
