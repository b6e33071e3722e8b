"""Exponential backoff with full jitter."""
from tavern_client.backoff import Backoff


def test_the_bound_doubles_up_to_the_maximum():
    backoff = Backoff(first_s=0.25, max_s=3.0, rand=lambda: 1.0)
    assert [backoff.next() for _ in range(6)] == [0.25, 0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next() == 0.25


def test_delays_are_uniform_below_the_bound():
    backoff = Backoff(first_s=1.0, max_s=1.0)
    waits = [backoff.next() for _ in range(2_000)]
    assert min(waits) < 0.05 and max(waits) > 0.95 and 0.45 < sum(waits) / len(waits) < 0.55


def test_the_delay_is_at_least_what_the_server_asked_for():
    assert Backoff(rand=lambda: 0.0).next(min_ms=1_500) == 1.5


def test_many_attempts_do_not_overflow():
    backoff = Backoff(rand=lambda: 1.0)
    backoff.tries = 10**9
    assert backoff.next() == backoff.max_s
