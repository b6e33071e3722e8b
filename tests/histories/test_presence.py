"""What the checks of presence accept, and what they do not."""
from judge.presence import replay

from .story import ROOM, broken, change, gap, history, members, of, session, subscribed

ORDER, SNAPSHOTS, AGREE = ("watchers get every change in order", "snapshots equal the changes before them",
                           "views and servers agree at the end")
BEGUN = subscribed(ROOM, members(10, bob={"b1": 1}))
CAME = (change("user_online", 11, user="cid"), change("client_online", 12, user="cid", client="c1", state=None))
WHOLE = {"bob": {"b1": 1}, "cid": {"c1": None}}


def order(*lines):
    return broken(ORDER, *of("ann", session(), *lines))


def view(*lines):
    return replay(history(*of("ann", session(), *lines)))[2]["ann", ROOM]


def test_changes_in_order_update_the_view():
    lines = (BEGUN, *CAME, change("client_updated", 13, user="bob", client="b1", state=2))
    assert order(*lines) == 0 and view(*lines) == {"bob": {"b1": 2}, "cid": {"c1": None}}


def test_a_decreasing_or_missing_version_is_detected():
    for version in (10, 9, 12):
        assert order(BEGUN, change("user_online", version, user="cid")) == 1


def test_the_version_of_an_empty_channel_may_jump():
    empty = subscribed(ROOM, members(10))
    assert order(empty, change("user_online", 500, user="cid")) == 0
    assert order(empty, change("user_online", 9, user="cid")) == 1


def test_changes_sent_together_name_their_first_version():
    together = change("presence", 20, from_version=10, joined=[{"user": "cid", "client": "c1", "state": None}], updated=[], left=[])
    assert order(BEGUN, together) == 0 and view(BEGUN, together) == WHOLE
    assert order(BEGUN, together | {"from_version": 12}) == 1
    assert order(BEGUN, together | {"from_version": 8}) == 0
    assert order(BEGUN, together | {"version": 10, "from_version": 8}) == 1
    assert view(BEGUN, change("presence", 11, from_version=10, left=[{"user": "bob"}])) == {}


def test_a_double_join_or_leave_is_detected():
    for wrong in (change("user_online", 11, user="bob"), change("client_online", 11, user="bob", client="b1"),
                  change("client_online", 11, user="cid", client="c1"), change("client_offline", 11, user="bob", client="b2"),
                  change("client_updated", 11, user="bob", client="b2"), change("user_offline", 11, user="cid"),
                  change("user_offline", 11, user="bob")):
        assert order(BEGUN, wrong) == 1, wrong


def test_a_gap_ends_the_view_and_a_snapshot_starts_it():
    lost = gap(channel=ROOM)
    assert order(BEGUN, lost, change("user_online", 99, user="x")) == 0
    assert view(BEGUN, lost, subscribed(ROOM, members(50))) == {}


def test_a_snapshot_is_compared_when_the_view_has_its_version():
    who = lambda version, known, **users: {"what": "who", "channel": ROOM, "members": members(version, **users), "known": known}
    check = lambda *lines: broken(SNAPSHOTS, *of("ann", session(), BEGUN, *lines))
    assert check(who(12, 10, **WHOLE), *CAME) == 0
    assert check(who(12, 10, bob={"b1": 1}), *CAME) == 1
    assert order(BEGUN, *CAME, who(11, 12)) == 1, "older than a change before it"


def test_ghosts_old_states_and_missing_users_at_the_end_are_detected():
    def agreed(seen, server, truth):
        watcher = of("ann", session(), subscribed(ROOM, members(5, **seen)))
        return broken(AGREE, *watcher, {"what": "shows", "server": "n1", "channel": ROOM, "users": server},
                      {"what": "truth", "channel": ROOM, "users": truth})

    assert agreed(WHOLE, WHOLE, WHOLE) == 0
    assert agreed(WHOLE, WHOLE, {"bob": {"b1": 1}}) == 2
    assert agreed(WHOLE, {"bob": {"b1": 1}}, WHOLE) == 1
    assert agreed({**WHOLE, "dan": {}}, WHOLE, WHOLE) == 1, "a user without a client is a ghost"
    assert agreed({**WHOLE, "bob": {"b1": 2}}, WHOLE, WHOLE) == 1, "an old state"
