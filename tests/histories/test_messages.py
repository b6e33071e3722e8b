"""What the checks of messages accept, and what they do not."""
from .story import gap, message, of, publish, session, subscribed, verdict

LOST, ORDER, SEQS = ("no acknowledged message is lost without a gap", "messages arrive once and in order", "sequence numbers have no holes")
BACK, DOWN = session(server="n2", fresh=False), {"what": "down"}


def check(name, *lines, published=(), more=()):
    found = verdict(name, *of("ann", *lines), *published, *more)
    return len(found.violations), found.notes


def losses(*lines, published, more=()):
    return check(LOST, *lines, published=published, more=more)


def several(*numbers, **more):
    return [publish(number, **more) for number in numbers]


def test_a_complete_history_is_accepted():
    lines = (session(), subscribed(), message(1, 0), message(2, 1), DOWN, BACK, message(3, 2))
    for name in (LOST, ORDER, SEQS):
        assert check(name, *lines, published=several(0, 1, 2)) == (0, {})


def test_a_gap_covers_the_seqs_it_names():
    assert check(SEQS, session(), message(1, 0), gap(5, None, first=2), message(6, 9))[0] == 0
    assert check(SEQS, session(), message(1, 0), gap(5, None, first=3), message(6, 9))[0] == 1


def test_the_same_message_in_a_new_session_is_not_a_duplicate():
    lines = (session(), subscribed(), message(1, 1), DOWN, session(), subscribed(), message(1, 1))
    assert check(ORDER, *lines, published=several(0, 1))[0] == 0


def test_only_a_gap_in_the_right_place_announces_a_loss():
    three = several(0, 1, 2)
    assert losses(session(), subscribed(), message(1, 0), gap(2), message(3, 2), published=three) == (0, {"announced as a gap": 1})
    assert losses(session(), subscribed(), message(1, 0), gap(2, "game#r1"), message(3, 2), published=three)[0] == 1
    assert losses(session(), subscribed(), gap(1), message(2, 0), message(3, 2), published=three)[0] == 1


def test_messages_that_were_not_promised_may_be_missing():
    lines = (session(), subscribed(), message(1, 0), message(2, 2))
    assert losses(*lines, published=[publish(0), publish(1, acknowledged=None), publish(2)])[0] == 0
    assert losses(session(), subscribed(), published=several(0, 1, at=0.5))[0] == 0, "before the subscription"
    again = (session(), subscribed(), message(1, 0), DOWN, session(), subscribed(), message(1, 5))
    assert losses(*again, published=several(0, 1, 2, 5, at=2.0))[0] == 0, "a new session announces it"


def test_only_the_last_messages_of_a_killed_server_may_be_lost():
    tail, kill = (session(), subscribed(), message(1, 0)), {"what": "killed", "server": "n1", "process": 1}
    assert losses(*tail, published=several(0, 1), more=[kill]) == (0, {"last messages of a killed server": 1})
    assert losses(*tail, published=several(0, 1), more=[kill | {"process": 2}])[0] == 1
    assert losses(*tail, message(2, 2), published=several(0, 1, 2), more=[kill])[0] == 1
    # A later message of another publisher on the same process arrived, so the loss should have been announced.
    assert losses(*tail, message(2, 0, "t.0"), published=[*several(0, 1), publish(0, of="t.0")], more=[kill])[0] == 1


def test_pattern_subscriptions_are_checked():
    lines = (session(), subscribed("shared#*"), message(1, 0))
    assert losses(*lines, message(2, 2), published=several(0, 1, 2))[0] == 1
    assert losses(*lines, gap(2, None, "shared#*"), message(3, 2), published=several(0, 1, 2)) == (0, {"announced as a gap": 1})
