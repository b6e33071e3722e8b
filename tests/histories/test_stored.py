"""What the checks of channel history accept, and what they do not."""
from .story import CHAT, broken, gap, of, position, publish, session, stored

FOLLOW, ORDER, ENDS = ("stored messages follow each other", "stored messages have one order for all",
                       "acknowledged stored messages reach everybody")


def killed(when):
    return {"at": when, "what": "store_killed"}


def check(*lines, more=()):
    return broken(FOLLOW, *of("ann", *lines), *more)


def test_a_complete_history_is_accepted():
    assert check(position([7, 2]), stored(3), stored(4), position([7, 4], [7, 4], True), stored(5), stored(1, epoch=8)) == 0


def test_a_subscriber_from_before_the_first_message_recovers_from_the_first():
    assert check(position([0, 0]), position([7, 0], [0, 0], True), stored(1)) == 0
    assert check(position([0, 0]), position([7, 1], [0, 0], True), stored(2)) == 1


def test_holes_duplicates_and_steps_back_are_detected():
    for second in ([stored(4)], [stored(3), stored(3)], [stored(3), stored(2)], [stored(2, epoch=8)]):
        assert check(position([7, 2]), *second) == 1


def test_messages_of_a_new_session_before_the_answer_do_not_count():
    assert check(position([7, 2]), stored(3), session(), stored(2), position([7, 3], [7, 3], True), stored(4)) == 0
    assert check(position([7, 2]), stored(3), session(), position([7, 3], [7, 3], True), stored(3)) == 1


def test_a_gap_is_a_violation_unless_the_store_lost_its_last_second():
    lines = (position([7, 2]), gap(channel=CHAT), stored(9))
    assert check(*lines) == 1
    assert check(*lines, more=[killed(0.5)]) == 0
    assert check(*lines, more=[killed(-100.0)]) == 1


def test_offsets_may_be_used_again_only_after_a_loss():
    lines = [*of("ann", position([7, 0]), stored(1, 1)), *of("bob", position([7, 0]), stored(1, 2))]
    assert broken(ORDER, *lines) == 1
    assert broken(ORDER, *lines, killed(2.0)) == 0


def test_what_was_acknowledged_long_before_a_kill_must_arrive():
    lines = [*of("ann", position([7, 0]), stored(1)),
             *(publish(number, of="h.0", channel=CHAT, position=[7, number], at=0.5) for number in (1, 2))]
    assert broken(ENDS, *lines) == 1
    assert broken(ENDS, *lines, killed(1.0)) == 0
    assert broken(ENDS, *lines, killed(9.0)) == 1
