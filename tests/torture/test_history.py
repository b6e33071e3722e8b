"""The checks of channel history detect planted violations and accept valid histories."""
import types

from torture.checks import history
from torture.publisher import PublisherRun

CHAT = "chat#c0"


def client(*entries):
    """A history with one entry per second."""
    log = [(float(at), *entry) for at, entry in enumerate(entries)]
    positions = {CHAT: entry[-1] for entry in entries if entry[0] == "stored"}
    return types.SimpleNamespace(name="ann", log=log, positions=positions)


def subscribed(position, since=None, recovered=None):
    return ("position", CHAT, since, position, recovered)


def stored(offset, number=None, epoch=7, seq=1):
    return ("stored", seq, CHAT, "s.0", offset if number is None else number, (epoch, offset))


GAP = ("gap", 1, CHAT, None, None)


def broken(*entries, losses=()):
    return len(history.messages_follow_each_other([client(*entries)], losses).violations)


def run(**positions):
    """A publisher whose messages have these offsets: m3=3."""
    numbers = {int(name[1:]): (7, offset) for name, offset in positions.items()}
    return PublisherRun("s.0", CHAT, "n1", 1, [(number, 0.0, 0.5) for number in numbers], numbers)


def test_a_subscriber_from_before_the_first_message_recovers_from_the_first():
    assert broken(subscribed((0, 0)), subscribed((7, 0), (0, 0), True), stored(1)) == 0
    assert broken(subscribed((0, 0)), subscribed((7, 1), (0, 0), True), stored(2)) == 1


def test_a_complete_history_is_accepted():
    assert broken(subscribed((7, 2)), stored(3), stored(4), subscribed((7, 4), (7, 4), True), stored(5), stored(1, epoch=8)) == 0


def test_holes_duplicates_and_steps_back_are_detected():
    assert broken(subscribed((7, 2)), stored(4)) == 1
    assert broken(subscribed((7, 2)), stored(3), stored(3)) == 1
    assert broken(subscribed((7, 2)), stored(3), stored(2)) == 1
    assert broken(subscribed((7, 2)), stored(2, epoch=8)) == 1


def test_messages_of_a_new_session_before_the_answer_do_not_count():
    session = ("session", "c1", "n1", 1, True, 0)
    assert broken(subscribed((7, 2)), stored(3), session, stored(2), subscribed((7, 3), (7, 3), True), stored(4)) == 0
    assert broken(subscribed((7, 2)), stored(3), session, subscribed((7, 3), (7, 3), True), stored(3)) == 1


def test_a_wrong_recovery_is_detected():
    assert broken(subscribed((7, 5), (7, 4), True)) == 1
    assert broken(subscribed((7, 9), (7, 4), False)) == 1


def test_a_gap_is_a_violation_unless_the_store_lost_its_last_second():
    assert broken(subscribed((7, 2)), GAP, stored(9)) == 1
    assert broken(subscribed((7, 2)), GAP, stored(9), losses=[0.5]) == 0
    assert broken(subscribed((7, 2)), GAP, stored(9), losses=[-100.0]) == 1


def test_different_messages_at_one_position_are_detected():
    one, other = client(subscribed((7, 0)), stored(1, 1)), client(subscribed((7, 0)), stored(1, 2))
    assert history.all_clients_have_the_same_history([one, one], []).violations == []
    assert history.all_clients_have_the_same_history([one, other], []).violations
    assert history.all_clients_have_the_same_history([one], [run(m1=1)]).violations == []
    assert history.all_clients_have_the_same_history([one], [run(m2=1)]).violations


def test_a_missing_end_is_detected():
    one = client(subscribed((7, 0)), stored(1, 1))
    assert history.clients_have_everything_at_the_end([one], [run(m1=1)]).violations == []
    assert history.clients_have_everything_at_the_end([one], [run(m1=1, m2=2)]).violations
    assert history.clients_have_everything_at_the_end([one], [run(m1=1, m2=2)], losses=[1.0]).violations == []
    assert history.clients_have_everything_at_the_end([one], [run(m1=1, m2=2)], losses=[9.0]).violations
