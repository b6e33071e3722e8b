"""The party's snapshot, folded by letters."""
from tavern_client.party import fold

PARTY = {
    "party_id": 5, "version": 3, "state": "idle", "data": {},
    "members": [{"user": "ann", "name": "Ann", "online": True, "since": 1}, {"user": "bob", "name": "Bob", "online": True, "since": 2}],
    "pending": [{"user": "cid", "by": "ann", "expires_at": 99}],
}


def letter(cmd, version=4, party_id=5, **members):
    return {"event": "party", "cmd": cmd, "party_id": party_id, "version": version, "ts": 7, **members}


def users(party):
    return [member["user"] for member in party["members"]]


def test_who_joins_is_last_and_no_longer_invited():
    for cmd in ("join", "accept"):
        new, certain = fold(PARTY, letter(cmd, uid="cid", user="Cid"), "ann")
        assert certain and users(new) == ["ann", "bob", "cid"] and new["pending"] == [] and new["version"] == 4
        assert new["members"][2] == {"user": "cid", "name": "Cid", "online": True, "since": 7}
        again, certain = fold(new, letter(cmd, uid="cid", user="Cid"), "ann")
        assert certain and again == new, "a letter that comes twice changes nothing"
        assert fold(PARTY, letter(cmd, uid="cid", user="cid"), "ann")[0]["members"][2]["name"] is None, "his id is no name"
    assert users(PARTY) == ["ann", "bob"], "the old snapshot is left as it was"


def test_who_leaves_and_who_leads_then():
    new, certain = fold(PARTY, letter("leave", uid="ann", reason="left"), "bob")
    assert certain and users(new) == ["bob"] and new["state"] == "forming"
    new, certain = fold(PARTY, letter("leader", uid="bob"), "bob")
    assert certain and users(new) == ["bob", "ann"]


def test_whoever_is_out_has_no_party():
    assert fold(PARTY, letter("kick", uid="ann"), "bob") == (None, True)
    assert fold(PARTY, letter("leave", uid="bob"), "bob") == (None, True)
    assert fold(PARTY, letter("disband", reason="empty"), "bob") == (None, True)


def test_invites_declines_data_and_being_away():
    invited, certain = fold(PARTY, letter("invited", uid="ann", invitee="dan", expires_at=100), "bob")
    assert certain and invited["pending"] == [*PARTY["pending"], {"user": "dan", "by": "ann", "expires_at": 100}]
    for cmd in ("decline", "uninvited"):
        assert fold(PARTY, letter(cmd, uid="cid"), "ann")[0]["pending"] == []
    assert fold(PARTY, letter("data", uid="ann", data={"map": "x"}), "bob")[0]["data"] == {"map": "x"}
    away, certain = fold(PARTY, letter("offline", uid="bob"), "ann")
    assert certain and [member["online"] for member in away["members"]] == [True, False]
    assert fold(away, letter("online", 5, uid="bob"), "ann")[0]["members"] == PARTY["members"]


def test_a_go_gathers_and_is_queued():
    new, certain = fold(PARTY, letter("party_go", uid="ann", go_id=4, state="gathering"), "bob")
    assert certain and (new["state"], new["go_id"]) == ("gathering", 4)
    new, certain = fold(new, letter("ready", 5, uid="bob", go_id=4, state="queued"), "bob")
    assert certain and (new["state"], new["go_id"]) == ("queued", 4)


def test_a_go_that_ends_leaves_the_party_idle():
    queued = {**PARTY, "state": "queued", "go_id": 3}
    for cmd in ("party_matched", "go_failed", "go_cancel"):
        new, certain = fold(queued, letter(cmd), "ann")
        assert certain and new["state"] == "idle" and "go_id" not in new


def test_what_is_older_is_not_applied():
    assert fold(PARTY, letter("disband", 2), "ann") == (PARTY, True)


def test_what_does_not_fit_asks_the_server():
    assert fold(PARTY, letter("data", 6, uid="ann", data={}), "bob")[1] is False, "a version is missing"
    assert fold(PARTY, letter("something_new"), "bob")[1] is False
    assert fold(None, letter("join", uid="bob"), "ann") == (None, False), "a party that we do not know of"


def test_invites_to_us_change_nothing():
    assert fold(None, letter("invite", 1, 9, uid="dan"), "ann") == (None, True)
    assert fold(PARTY, letter("invite_cancel", 1, 9, uid="dan"), "ann") == (PARTY, True)
