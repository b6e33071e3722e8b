"""How long to wait before the next try: anything between nothing and a bound that doubles, so that many clients do not come at once.

Must hold: the bound never exceeds `most_s`; what the server asked for is waited at least.
"""
from __future__ import annotations

import random
from typing import Callable

FIRST_S = 0.25
MOST_S = 15.0


class Backoff:
    def __init__(self, first_s: float = FIRST_S, most_s: float = MOST_S, dice: Callable[[], float] = random.random) -> None:
        self.first_s, self.most_s, self.dice = first_s, most_s, dice
        self.tries = 0

    def bound(self) -> float:
        # The exponent is bounded too: a client may try for weeks.
        return min(self.most_s, self.first_s * 2.0 ** min(self.tries, 32))

    def next(self, at_least_ms: int | None = None) -> float:
        """Seconds until the next try, and one try more."""
        wait = self.dice() * self.bound()
        self.tries += 1
        return wait + (at_least_ms or 0) / 1000

    def reset(self) -> None:
        self.tries = 0
