"""Backing off: full jitter under a bound that doubles."""
from tavern_client.backoff import Backoff


def test_the_bound_doubles_up_to_the_most():
    backoff = Backoff(first_s=0.25, most_s=3.0, dice=lambda: 1.0)
    assert [backoff.next() for _ in range(6)] == [0.25, 0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next() == 0.25


def test_any_time_below_the_bound_is_possible():
    backoff = Backoff(first_s=1.0, most_s=1.0)
    waits = [backoff.next() for _ in range(2_000)]
    assert min(waits) < 0.05 and max(waits) > 0.95 and 0.45 < sum(waits) / len(waits) < 0.55


def test_what_the_server_asks_for_is_waited_at_least():
    assert Backoff(dice=lambda: 0.0).next(at_least_ms=1_500) == 1.5


def test_weeks_of_trying_do_not_overflow():
    backoff = Backoff(dice=lambda: 1.0)
    backoff.tries = 10**9
    assert backoff.next() == backoff.most_s
