"""The judge of `make truth` finds what is planted into what watchers were told, and accepts what is true."""
import types

from truth import scores

BOUNDS = {"lost": 5, "server": 9}
ROOM = "tab"


def score(truth, told, watcher=((0.0, True, ""),), end=60.0):
    """`truth` about ann: (when, connected, cause); what one watcher was told: (when, what, about)."""
    record = types.SimpleNamespace(
        users={(ROOM, "ann"): list(truth)}, watchers={"w": list(watcher)}, told=[("w", *line) for line in told],
        clients={"w": types.SimpleNamespace(room=ROOM)})
    return scores.judge(record, ROOM, BOUNDS, 0.0, end)


CAME, GONE = (1.0, True, ""), (20.0, False, "lost")
EMPTY, ONLINE, OFFLINE = (0.5, "snapshot", []), (1.2, "online", "ann"), (25.1, "offline", "ann")


def faults(found):
    return round(found.ghosts, 1), found.false_offlines, found.flaps, found.duplicates


def test_what_is_true_has_no_fault_and_is_timed():
    found = score([CAME, GONE], [EMPTY, ONLINE, OFFLINE])
    assert faults(found) == (0, 0, 0, 0)
    assert [round(late, 1) for late in (*found.online, *found.offline)] == [0.2, 5.1]


def test_a_ghost_counts_from_the_bound():
    assert faults(score([CAME, GONE], [EMPTY, ONLINE])) == (60 - 20 - 5 - scores.SLACK, 0, 0, 0)
    assert faults(score([CAME, (20.0, False, "server")], [EMPTY, ONLINE])) == (60 - 20 - 9 - scores.SLACK, 0, 0, 0)
    assert faults(score([CAME, GONE], [EMPTY, ONLINE, (40.0, "offline", "ann")])) == (40 - 25 - scores.SLACK, 0, 0, 0)


def test_a_false_offline_is_found():
    assert faults(score([CAME], [EMPTY])) == (0, 1, 0, 0)
    assert faults(score([CAME], [EMPTY, (3.5, "online", "ann")])) == (0, 0, 0, 0), "in time"
    assert faults(score([CAME], [EMPTY, ONLINE, (30.0, "snapshot", [])])) == (0, 1, 0, 0), "a snapshot may be wrong, too"


def test_a_flap_is_a_pair_that_nobody_caused():
    pair = [(20.1, "offline", "ann"), (21.1, "online", "ann")]
    assert faults(score([CAME], [EMPTY, ONLINE, *pair]))[1:3] == (1, 1)
    reload = [CAME, GONE, (21.0, True, "")]
    assert faults(score(reload, [EMPTY, ONLINE, *pair])) == (0, 0, 1, 0), "a reload"
    assert faults(score(reload, [EMPTY, ONLINE])) == (0, 0, 0, 0)
    away = [CAME, GONE, (30.0, True, "")]
    assert faults(score(away, [EMPTY, ONLINE, OFFLINE, (30.1, "online", "ann")])) == (0, 0, 0, 0), "she was away"


def test_a_duplicate_is_found():
    assert faults(score([CAME], [EMPTY, ONLINE, (2.0, "online", "ann")])) == (0, 0, 0, 1)
    assert faults(score([CAME], [EMPTY, ONLINE, (2.0, "snapshot", ["ann"])])) == (0, 0, 0, 0)


def test_a_watcher_without_a_connection_is_not_judged():
    lost = [(0.0, True, ""), (10.0, False, "lost"), (50.0, True, "")]
    assert faults(score([CAME, GONE], [EMPTY, ONLINE, (10.0, "down", None), (50.0, "snapshot", [])], lost)) == (0, 0, 0, 0)
    assert score([CAME, GONE], [EMPTY, ONLINE, (10.0, "down", None), (50.0, "snapshot", ["ann"])], lost).ghosts > 5
