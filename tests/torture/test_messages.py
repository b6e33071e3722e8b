"""The promises about messages find what is planted, and nothing where nothing is."""
import types

from torture.checks import messages
from torture.speaker import Life


def client(*entries):
    """A history with times that count by one; a session begins it."""
    log = [(float(at), *entry) for at, entry in enumerate(entries)]
    return types.SimpleNamespace(name="ann", log=log)


NEW = ("session", "c1", "n1", 1, True, 0)
BACK = ("session", "c1", "n2", 1, False, 3)
SUBSCRIBED = ("subscribed", "hall#all", None)


def heard(seq, number, of="s.0"):
    return ("message", seq, "hall#all", of, number)


def gap(seq, channel="hall#all"):
    return ("gap", seq, channel, None, None)


def said(*numbers, at=100.0, of="s.0", lost=()):
    """A life that said these words, acknowledged but for some."""
    return Life(of, "hall#all", "n1", 1, [(number, at, None if number in lost else at) for number in numbers])


def holes(one, life, kills=()):
    verdict = messages.every_hole_is_announced([one], [life], set(kills))
    return len(verdict.violations), verdict.notes


def test_a_whole_history_is_fine():
    one = client(NEW, SUBSCRIBED, heard(1, 0), heard(2, 1), ("down",), BACK, heard(3, 2))
    assert messages.mailboxes_have_no_holes([one]).violations == []
    assert messages.words_come_once_and_in_order([one], [said(0, 1, 2)]).violations == []
    assert holes(one, said(0, 1, 2)) == (0, {})


def test_a_hole_in_the_numbers_is_found():
    assert messages.mailboxes_have_no_holes([client(NEW, SUBSCRIBED, heard(1, 0), heard(3, 1))]).violations
    assert messages.mailboxes_have_no_holes([client(NEW, SUBSCRIBED, heard(1, 0), heard(1, 0))]).violations


def test_a_gap_stands_for_the_numbers_it_names():
    assert messages.mailboxes_have_no_holes([client(NEW, heard(1, 0), ("gap", 5, None, None, 2), heard(6, 9))]).violations == []
    assert messages.mailboxes_have_no_holes([client(NEW, heard(1, 0), ("gap", 5, None, None, 3), heard(6, 9))]).violations


def test_a_repeated_word_and_a_wrong_order_are_found():
    for second in (0, 1):
        one = client(NEW, SUBSCRIBED, heard(1, 1), heard(2, second))
        assert messages.words_come_once_and_in_order([one], [said(0, 1)]).violations


def test_a_word_again_in_a_new_session_is_no_repetition():
    one = client(NEW, SUBSCRIBED, heard(1, 1), ("down",), NEW, SUBSCRIBED, heard(1, 1))
    assert messages.words_come_once_and_in_order([one], [said(0, 1)]).violations == []


def test_a_lost_word_is_found():
    assert holes(client(NEW, SUBSCRIBED, heard(1, 0), heard(2, 2)), said(0, 1, 2)) == (1, {})


def test_a_lost_last_word_is_found():
    assert holes(client(NEW, SUBSCRIBED, heard(1, 0)), said(0, 1)) == (1, {})


def test_a_lost_word_that_was_announced_is_counted():
    one = client(NEW, SUBSCRIBED, heard(1, 0), gap(2), heard(3, 2))
    assert holes(one, said(0, 1, 2)) == (0, {"announced as a gap": 1})


def test_a_gap_elsewhere_announces_nothing():
    assert holes(client(NEW, SUBSCRIBED, heard(1, 0), gap(2, "game#r1"), heard(3, 2)), said(0, 1, 2))[0] == 1
    assert holes(client(NEW, SUBSCRIBED, gap(1), heard(2, 0), heard(3, 2)), said(0, 1, 2))[0] == 1


def test_a_word_that_was_not_acknowledged_may_be_missing():
    assert holes(client(NEW, SUBSCRIBED, heard(1, 0), heard(2, 2)), said(0, 1, 2, lost=[1]))[0] == 0


def test_a_word_before_the_subscription_may_be_missing():
    assert holes(client(NEW, SUBSCRIBED), said(0, 1, at=0.5))[0] == 0


def test_a_new_session_announces_what_the_old_one_missed():
    one = client(NEW, SUBSCRIBED, heard(1, 0), ("down",), NEW, ("subscribed", "hall#all", None), heard(1, 5))
    assert holes(one, said(0, 1, 2, 5, at=2.0))[0] == 0


def test_last_words_of_a_killed_server_are_counted_and_no_others():
    tail = client(NEW, SUBSCRIBED, heard(1, 0))
    assert holes(tail, said(0, 1), kills=[("n1", 1)]) == (0, {"last words of a killed server": 1})
    assert holes(tail, said(0, 1), kills=[("n1", 2)])[0] == 1
    inside = client(NEW, SUBSCRIBED, heard(1, 0), heard(2, 2))
    assert holes(inside, said(0, 1, 2), kills=[("n1", 1)])[0] == 1
    # Another speaker of the same process was heard later: the hole was to be seen.
    verdict = messages.every_hole_is_announced(
        [client(NEW, SUBSCRIBED, heard(1, 0), heard(2, 0, "t.0"))], [said(0, 1), said(0, of="t.0")], {("n1", 1)})
    assert len(verdict.violations) == 1


def test_a_listener_by_pattern_has_a_window_too():
    one = client(NEW, ("subscribed", "hall#*", None), heard(1, 0), heard(2, 2))
    assert holes(one, said(0, 1, 2))[0] == 1
    told = client(NEW, ("subscribed", "hall#*", None), heard(1, 0), ("gap", 2, None, "hall#*", None), heard(3, 2))
    assert holes(told, said(0, 1, 2)) == (0, {"announced as a gap": 1})
