"""The checks of presence detect planted violations and accept valid histories."""
import types

from torture.checks import presence

ROOM = "game#r0"
NEW = ("session", "c1", "n1", 1, True, 0)


def snapshot(version, **users):
    listed = [{"user": user, "clients": [{"client": client, "state": state} for client, state in clients.items()]}
              for user, clients in users.items()]
    return {"version": version, "users": listed}


def event(version, kind, **more):
    return ("event", 1, {"event": kind, "channel": ROOM, "version": version} | more)


def watcher(*entries):
    log = [(float(at), *entry) for at, entry in enumerate((NEW, *entries))]
    return types.SimpleNamespace(name="ann", watches=[ROOM], log=log)


def verdicts(*entries):
    order, snapshots, views = presence.watchers_get_events_in_order([watcher(*entries)])
    return order.violations, snapshots.violations, views["ann"]


BEGUN = ("subscribed", ROOM, snapshot(10, bob={"b1": 1}))
CAME = (event(11, "user_online", user="cid"), event(12, "client_online", user="cid", client="c1", state=None))
WHOLE = {"bob": {"b1": 1}, "cid": {"c1": None}}


def test_events_in_order_update_the_view():
    order, snapshots, views = verdicts(BEGUN, *CAME, event(13, "client_updated", user="bob", client="b1", state=2))
    assert (order, snapshots) == ([], [])
    assert views[ROOM].users == {"bob": {"b1": 2}, "cid": {"c1": None}}


def test_a_decreasing_or_missing_version_is_detected():
    for version in (10, 9, 12):
        assert verdicts(BEGUN, event(version, "user_online", user="cid"))[0]


def test_the_version_of_an_empty_channel_may_jump():
    begun = ("subscribed", ROOM, snapshot(10))
    assert verdicts(begun, event(500, "user_online", user="cid"))[0] == []
    assert verdicts(begun, event(9, "user_online", user="cid"))[0]


def test_a_coalesced_event_names_its_first_version():
    healed = event(20, "presence", from_version=10, joined=[{"user": "cid", "client": "c1", "state": None}], updated=[], left=[])
    order, _, views = verdicts(BEGUN, healed)
    assert order == [] and views[ROOM].users == WHOLE
    assert verdicts(BEGUN, event(20, "presence", from_version=12, joined=[], updated=[], left=[]))[0]
    assert verdicts(BEGUN, event(20, "presence", from_version=8, joined=[], updated=[], left=[]))[0] == []
    assert verdicts(BEGUN, event(10, "presence", from_version=8, joined=[], updated=[], left=[]))[0]


def test_left_without_a_client_means_the_whole_user():
    gone = event(11, "presence", from_version=10, joined=[], updated=[], left=[{"user": "bob"}])
    assert verdicts(BEGUN, gone)[2][ROOM].users == {}


def test_a_double_join_or_leave_is_detected():
    assert verdicts(BEGUN, event(11, "user_online", user="bob"))[0]
    assert verdicts(BEGUN, event(11, "client_online", user="bob", client="b1", state=1))[0]
    assert verdicts(BEGUN, event(11, "client_online", user="cid", client="c1", state=1))[0]
    assert verdicts(BEGUN, event(11, "client_offline", user="bob", client="b2"))[0]
    assert verdicts(BEGUN, event(11, "user_offline", user="cid"))[0]
    assert verdicts(BEGUN, event(11, "user_offline", user="bob"))[0], "before their client"


def test_a_gap_ends_the_view_and_a_snapshot_starts_it():
    gap = ("gap", 2, ROOM, None, None)
    assert verdicts(BEGUN, gap, event(99, "user_online", user="x"))[:2] == ([], [])
    assert verdicts(BEGUN, gap, ("subscribed", ROOM, snapshot(50)))[2][ROOM].version == 50


def test_a_snapshot_that_differs_from_the_view_is_detected():
    good, bad = snapshot(12, **WHOLE), snapshot(12, bob={"b1": 1})
    assert verdicts(BEGUN, ("who", ROOM, good, 10), *CAME)[1] == []
    assert verdicts(BEGUN, ("who", ROOM, bad, 10), *CAME)[1]
    assert verdicts(BEGUN, *CAME, ("who", ROOM, bad, 12))[1]


def test_a_who_older_than_earlier_events_is_detected():
    assert verdicts(BEGUN, *CAME, ("who", ROOM, snapshot(11), 12))[0]


def agreed(view, server, truth):
    views = {"ann": {ROOM: types.SimpleNamespace(users=view)}}
    return len(presence.all_views_agree_at_the_end(views, {("n1", ROOM): snapshot(5, **server)}, {ROOM: truth}).violations)


def test_ghosts_and_missing_users_at_the_end_are_detected():
    assert agreed(WHOLE, WHOLE, WHOLE) == 0
    assert agreed(WHOLE, WHOLE, {"bob": {"b1": 1}}) == 2
    assert agreed(WHOLE, {"bob": {"b1": 1}}, WHOLE) == 1
    assert agreed({**WHOLE, "dan": {}}, WHOLE, WHOLE) == 1, "a user without a client is a ghost"
    assert agreed({**WHOLE, "bob": {"b1": 2}}, WHOLE, WHOLE) == 1, "an old state"
