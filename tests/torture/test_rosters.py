"""The promises about presence find what is planted, and nothing where nothing is."""
import types

from torture.checks import rosters

ROOM = "game#r0"
NEW = ("session", "c1", "n1", 1, True, 0)


def snapshot(version, **users):
    listed = [{"user": user, "clients": [{"client": client, "state": state} for client, state in clients.items()]}
              for user, clients in users.items()]
    return {"version": version, "users": listed}


def event(version, kind, **more):
    return ("told", 1, {"event": kind, "channel": ROOM, "version": version} | more)


def watcher(*entries):
    log = [(float(at), *entry) for at, entry in enumerate((NEW, *entries))]
    return types.SimpleNamespace(name="ann", watches=[ROOM], log=log)


def verdicts(*entries):
    order, snapshots, views = rosters.watchers_are_told_in_order([watcher(*entries)])
    return order.violations, snapshots.violations, views["ann"]


BEGUN = ("subscribed", ROOM, snapshot(10, bob={"b1": 1}))
CAME = (event(11, "user_online", user="cid"), event(12, "client_online", user="cid", client="c1", state=None))
WHOLE = {"bob": {"b1": 1}, "cid": {"c1": None}}


def test_events_in_order_give_the_view():
    order, snapshots, views = verdicts(BEGUN, *CAME, event(13, "client_updated", user="bob", client="b1", state=2))
    assert (order, snapshots) == ([], [])
    assert views[ROOM].users == {"bob": {"b1": 2}, "cid": {"c1": None}}


def test_a_version_that_goes_back_or_is_left_out_is_found():
    for version in (10, 9, 12):
        assert verdicts(BEGUN, event(version, "user_online", user="cid"))[0]


def test_a_version_may_jump_when_nobody_was_there():
    begun = ("subscribed", ROOM, snapshot(10))
    assert verdicts(begun, event(500, "user_online", user="cid"))[0] == []
    assert verdicts(begun, event(9, "user_online", user="cid"))[0]


def test_a_difference_names_from_where():
    healed = event(20, "presence", from_version=10, joined=[{"user": "cid", "client": "c1", "state": None}], updated=[], left=[])
    order, _, views = verdicts(BEGUN, healed)
    assert order == [] and views[ROOM].users == WHOLE
    assert verdicts(BEGUN, event(20, "presence", from_version=12, joined=[], updated=[], left=[]))[0]
    assert verdicts(BEGUN, event(20, "presence", from_version=8, joined=[], updated=[], left=[]))[0] == []
    assert verdicts(BEGUN, event(10, "presence", from_version=8, joined=[], updated=[], left=[]))[0]


def test_what_is_left_without_a_client_is_the_whole_user():
    gone = event(11, "presence", from_version=10, joined=[], updated=[], left=[{"user": "bob"}])
    assert verdicts(BEGUN, gone)[2][ROOM].users == {}


def test_somebody_who_comes_twice_or_goes_twice_is_found():
    assert verdicts(BEGUN, event(11, "user_online", user="bob"))[0]
    assert verdicts(BEGUN, event(11, "client_online", user="bob", client="b1", state=1))[0]
    assert verdicts(BEGUN, event(11, "client_online", user="cid", client="c1", state=1))[0]
    assert verdicts(BEGUN, event(11, "client_offline", user="bob", client="b2"))[0]
    assert verdicts(BEGUN, event(11, "user_offline", user="cid"))[0]
    assert verdicts(BEGUN, event(11, "user_offline", user="bob"))[0], "before his client"


def test_a_gap_ends_the_view_and_a_snapshot_begins_it():
    gap = ("gap", 2, ROOM, None, None)
    assert verdicts(BEGUN, gap, event(99, "user_online", user="x"))[:2] == ([], [])
    assert verdicts(BEGUN, gap, ("subscribed", ROOM, snapshot(50)))[2][ROOM].version == 50


def test_a_snapshot_that_differs_is_found_when_the_view_comes_to_it():
    good, bad = snapshot(12, **WHOLE), snapshot(12, bob={"b1": 1})
    assert verdicts(BEGUN, ("who", ROOM, good, 10), *CAME)[1] == []
    assert verdicts(BEGUN, ("who", ROOM, bad, 10), *CAME)[1]
    assert verdicts(BEGUN, *CAME, ("who", ROOM, bad, 12))[1]


def test_who_that_is_older_than_what_was_told_is_found():
    assert verdicts(BEGUN, *CAME, ("who", ROOM, snapshot(11), 12))[0]


def agreed(view, server, truth):
    views = {"ann": {ROOM: types.SimpleNamespace(users=view)}}
    return len(rosters.everybody_agrees_at_the_end(views, {("n1", ROOM): snapshot(5, **server)}, {ROOM: truth}).violations)


def test_ghosts_and_missing_ones_at_the_end_are_found():
    assert agreed(WHOLE, WHOLE, WHOLE) == 0
    assert agreed(WHOLE, WHOLE, {"bob": {"b1": 1}}) == 2
    assert agreed(WHOLE, {"bob": {"b1": 1}}, WHOLE) == 1
    assert agreed({**WHOLE, "dan": {}}, WHOLE, WHOLE) == 1, "a user without a client is a ghost"
    assert agreed({**WHOLE, "bob": {"b1": 2}}, WHOLE, WHOLE) == 1, "an old state"
