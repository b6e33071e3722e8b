"""Exponential backoff with full jitter, so that many clients do not reconnect at once.

Must hold: the random part never exceeds `max_s`; the delay is never shorter than what the server asked for.
"""
from __future__ import annotations

import random
from typing import Callable

FIRST_S = 0.25
MAX_S = 15.0


class Backoff:
    def __init__(self, first_s: float = FIRST_S, max_s: float = MAX_S, rand: Callable[[], float] = random.random) -> None:
        self.first_s, self.max_s, self.rand = first_s, max_s, rand
        self.tries = 0

    def bound(self) -> float:
        # Cap the exponent: a client may retry for weeks.
        return min(self.max_s, self.first_s * 2.0 ** min(self.tries, 32))

    def next(self, min_ms: int | None = None) -> float:
        """Seconds until the next attempt; counts the attempt."""
        wait = self.rand() * self.bound()
        self.tries += 1
        return wait + (min_ms or 0) / 1000

    def reset(self) -> None:
        self.tries = 0
