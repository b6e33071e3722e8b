"""The checks of messages detect planted violations and accept valid histories."""
import types

from torture.checks import messages
from torture.publisher import PublisherRun


def client(*entries):
    """A history with one entry per second that starts with a session."""
    log = [(float(at), *entry) for at, entry in enumerate(entries)]
    return types.SimpleNamespace(name="ann", log=log)


NEW = ("session", "c1", "n1", 1, True, 0)
BACK = ("session", "c1", "n2", 1, False, 3)
SUBSCRIBED = ("subscribed", "shared#all", None)


def on_event(seq, number, of="s.0"):
    return ("message", seq, "shared#all", of, number)


def gap(seq, channel="shared#all"):
    return ("gap", seq, channel, None, None)


def published(*numbers, at=100.0, of="s.0", lost=()):
    """A run that published these messages, all acknowledged except `lost`."""
    return PublisherRun(of, "shared#all", "n1", 1, [(number, at, None if number in lost else at) for number in numbers])


def losses_of(one, run, kills=()):
    verdict = messages.every_loss_is_announced([one], [run], set(kills))
    return len(verdict.violations), verdict.notes


def test_a_complete_history_is_accepted():
    one = client(NEW, SUBSCRIBED, on_event(1, 0), on_event(2, 1), ("down",), BACK, on_event(3, 2))
    assert messages.mailboxes_have_no_losses_of([one]).violations == []
    assert messages.messages_arrive_once_and_in_order([one], [published(0, 1, 2)]).violations == []
    assert losses_of(one, published(0, 1, 2)) == (0, {})


def test_a_missing_seq_is_detected():
    assert messages.mailboxes_have_no_losses_of([client(NEW, SUBSCRIBED, on_event(1, 0), on_event(3, 1))]).violations
    assert messages.mailboxes_have_no_losses_of([client(NEW, SUBSCRIBED, on_event(1, 0), on_event(1, 0))]).violations


def test_a_gap_covers_the_seqs_it_names():
    assert messages.mailboxes_have_no_losses_of([client(NEW, on_event(1, 0), ("gap", 5, None, None, 2), on_event(6, 9))]).violations == []
    assert messages.mailboxes_have_no_losses_of([client(NEW, on_event(1, 0), ("gap", 5, None, None, 3), on_event(6, 9))]).violations


def test_a_duplicate_and_a_wrong_order_are_detected():
    for second in (0, 1):
        one = client(NEW, SUBSCRIBED, on_event(1, 1), on_event(2, second))
        assert messages.messages_arrive_once_and_in_order([one], [published(0, 1)]).violations


def test_the_same_message_in_a_new_session_is_not_a_duplicate():
    one = client(NEW, SUBSCRIBED, on_event(1, 1), ("down",), NEW, SUBSCRIBED, on_event(1, 1))
    assert messages.messages_arrive_once_and_in_order([one], [published(0, 1)]).violations == []


def test_a_lost_message_is_detected():
    assert losses_of(client(NEW, SUBSCRIBED, on_event(1, 0), on_event(2, 2)), published(0, 1, 2)) == (1, {})


def test_a_lost_last_message_is_detected():
    assert losses_of(client(NEW, SUBSCRIBED, on_event(1, 0)), published(0, 1)) == (1, {})


def test_an_announced_loss_is_counted():
    one = client(NEW, SUBSCRIBED, on_event(1, 0), gap(2), on_event(3, 2))
    assert losses_of(one, published(0, 1, 2)) == (0, {"announced as a gap": 1})


def test_a_gap_elsewhere_does_not_announce_the_loss():
    assert losses_of(client(NEW, SUBSCRIBED, on_event(1, 0), gap(2, "game#r1"), on_event(3, 2)), published(0, 1, 2))[0] == 1
    assert losses_of(client(NEW, SUBSCRIBED, gap(1), on_event(2, 0), on_event(3, 2)), published(0, 1, 2))[0] == 1


def test_an_unacknowledged_message_may_be_missing():
    assert losses_of(client(NEW, SUBSCRIBED, on_event(1, 0), on_event(2, 2)), published(0, 1, 2, lost=[1]))[0] == 0


def test_a_message_before_the_subscription_may_be_missing():
    assert losses_of(client(NEW, SUBSCRIBED), published(0, 1, at=0.5))[0] == 0


def test_a_new_session_announces_the_loss_of_the_old_one():
    one = client(NEW, SUBSCRIBED, on_event(1, 0), ("down",), NEW, ("subscribed", "shared#all", None), on_event(1, 5))
    assert losses_of(one, published(0, 1, 2, 5, at=2.0))[0] == 0


def test_only_the_last_messages_of_a_killed_server_may_be_lost():
    tail = client(NEW, SUBSCRIBED, on_event(1, 0))
    assert losses_of(tail, published(0, 1), kills=[("n1", 1)]) == (0, {"last messages of a killed server": 1})
    assert losses_of(tail, published(0, 1), kills=[("n1", 2)])[0] == 1
    inside = client(NEW, SUBSCRIBED, on_event(1, 0), on_event(2, 2))
    assert losses_of(inside, published(0, 1, 2), kills=[("n1", 1)])[0] == 1
    # A later message of another publisher on the same process arrived, so the loss should have been announced.
    verdict = messages.every_loss_is_announced(
        [client(NEW, SUBSCRIBED, on_event(1, 0), on_event(2, 0, "t.0"))], [published(0, 1), published(0, of="t.0")], {("n1", 1)})
    assert len(verdict.violations) == 1


def test_pattern_subscriptions_are_checked():
    one = client(NEW, ("subscribed", "shared#*", None), on_event(1, 0), on_event(2, 2))
    assert losses_of(one, published(0, 1, 2))[0] == 1
    event_entry = client(NEW, ("subscribed", "shared#*", None), on_event(1, 0), ("gap", 2, None, "shared#*", None), on_event(3, 2))
    assert losses_of(event_entry, published(0, 1, 2)) == (0, {"announced as a gap": 1})
