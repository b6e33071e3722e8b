"""The party snapshot after party events."""
from tavern_client.party import fold

PARTY = {
    "party_id": 5, "version": 3, "state": "idle", "data": {},
    "members": [{"user": "ann", "name": "Ann", "online": True, "since": 1}, {"user": "bob", "name": "Bob", "online": True, "since": 2}],
    "pending": [{"user": "cid", "by": "ann", "expires_at": 99}],
}


def party_event(cmd, version=4, party_id=5, **members):
    return {"event": "party", "cmd": cmd, "party_id": party_id, "version": version, "ts": 7, **members}


def users(party):
    return [member["user"] for member in party["members"]]


def test_a_joining_user_is_last_and_no_longer_invited():
    for cmd in ("join", "accept"):
        new, certain = fold(PARTY, party_event(cmd, uid="cid", user="Cid"), "ann")
        assert certain and users(new) == ["ann", "bob", "cid"] and new["pending"] == [] and new["version"] == 4
        assert new["members"][2] == {"user": "cid", "name": "Cid", "online": True, "since": 7}
        repeated, certain = fold(new, party_event(cmd, uid="cid", user="Cid"), "ann")
        assert certain and repeated == new, "a duplicate event changes nothing"
        assert fold(PARTY, party_event(cmd, uid="cid", user="cid"), "ann")[0]["members"][2]["name"] is None, "an id is not a display name"
    assert users(PARTY) == ["ann", "bob"], "the old snapshot is unchanged"


def test_leave_removes_a_member_and_leader_moves_one_to_the_front():
    new, certain = fold(PARTY, party_event("leave", uid="ann", reason="left"), "bob")
    assert certain and users(new) == ["bob"] and new["state"] == "forming"
    new, certain = fold(PARTY, party_event("leader", uid="bob"), "bob")
    assert certain and users(new) == ["bob", "ann"]


def test_kick_own_leave_and_disband_end_the_party():
    assert fold(PARTY, party_event("kick", uid="ann"), "bob") == (None, True)
    assert fold(PARTY, party_event("leave", uid="bob"), "bob") == (None, True)
    assert fold(PARTY, party_event("disband", reason="empty"), "bob") == (None, True)


def test_invites_declines_data_and_offline_members():
    invited, certain = fold(PARTY, party_event("invited", uid="ann", invitee="dan", expires_at=100), "bob")
    assert certain and invited["pending"] == [*PARTY["pending"], {"user": "dan", "by": "ann", "expires_at": 100}]
    for cmd in ("decline", "uninvited"):
        assert fold(PARTY, party_event(cmd, uid="cid"), "ann")[0]["pending"] == []
    assert fold(PARTY, party_event("data", uid="ann", data={"map": "x"}), "bob")[0]["data"] == {"map": "x"}
    away, certain = fold(PARTY, party_event("offline", uid="bob"), "ann")
    assert certain and [member["online"] for member in away["members"]] == [True, False]
    assert fold(away, party_event("online", 5, uid="bob"), "ann")[0]["members"] == PARTY["members"]


def test_go_sets_the_state_gathering_then_queued():
    new, certain = fold(PARTY, party_event("party_go", uid="ann", go_id=4, state="gathering"), "bob")
    assert certain and (new["state"], new["go_id"]) == ("gathering", 4)
    new, certain = fold(new, party_event("ready", 5, uid="bob", go_id=4, state="queued"), "bob")
    assert certain and (new["state"], new["go_id"]) == ("queued", 4)


def test_the_end_of_a_ticket_leaves_the_party_idle():
    queued = {**PARTY, "state": "queued", "go_id": 3}
    for cmd in ("party_matched", "go_failed", "go_cancel"):
        new, certain = fold(queued, party_event(cmd), "ann")
        assert certain and new["state"] == "idle" and "go_id" not in new


def test_an_older_event_is_ignored():
    assert fold(PARTY, party_event("disband", 2), "ann") == (PARTY, True)


def test_an_event_that_does_not_apply_requires_a_reload():
    assert fold(PARTY, party_event("data", 6, uid="ann", data={}), "bob")[1] is False, "a version is missing"
    assert fold(PARTY, party_event("something_new"), "bob")[1] is False
    assert fold(None, party_event("join", uid="bob"), "ann") == (None, False), "an unknown party"


def test_invites_from_other_parties_change_nothing():
    assert fold(None, party_event("invite", 1, 9, uid="dan"), "ann") == (None, True)
    assert fold(PARTY, party_event("invite_cancel", 1, 9, uid="dan"), "ann") == (PARTY, True)
