"""Facts that servers have acknowledged: follows, visibility, app-set presence, API keys.

One task owns a fact and changes it with one request at a time. A request without a reply may be executed at any later moment (its
server may be suspended with the request in its buffer), so it is repeated until it is acknowledged, and then the fact is left alone
for longer than any request can be in flight.
"""
import asyncio
import collections
import time

LEFT_ALONE = 25.0
# Redis fsyncs every second; writes acknowledged just before a kill may be lost.
UNWRITTEN = 2.5


class Fact:
    def __init__(self, value):
        # (time of the acknowledgement, value); the first is the initial value.
        self.acknowledged = [(float("-inf"), value)]
        self.doubt = None
        self.free_at = 0.0

    @property
    def value(self):
        return self.acknowledged[-1][1]


class Facts:
    def __init__(self):
        self.known = {}
        self.counts = collections.Counter()

    def fact(self, key, value=None):
        if key not in self.known:
            self.known[key] = Fact(value)
        return self.known[key]

    def is_free(self, key):
        fact = self.known[key]
        return fact.doubt is None and time.monotonic() >= fact.free_at

    async def change(self, key, value, act, failures):
        """Repeats a request until it is acknowledged."""
        fact, doubtful = self.known[key], False
        while True:
            fact.doubt = value
            self.counts[key[0], "asked"] += 1
            try:
                await act()
                break
            except failures:
                doubtful = True
                await asyncio.sleep(0.3)
        self.counts[key[0], "acknowledged"] += 1
        fact.acknowledged.append((time.monotonic(), value))
        fact.doubt = None
        if doubtful:
            fact.free_at = time.monotonic() + LEFT_ALONE

    def of(self, kind):
        return {key: fact for key, fact in self.known.items() if key[0] == kind}
