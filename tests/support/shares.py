"""Distributes tests over parallel processes (`pytest -n 4`) and checks that each ran exactly once.

A share runs in one process, so that its tests can share servers. It is a module; in `cluster`, `events` and `parties` a module and one
combination of engines; in the client scenarios one client.
"""
import collections
import re

from xdist.scheduler import LoadScopeScheduling

# The slowest modules start first.
LONG = ("clients/test_scenarios.py", "cluster/test_engine_failures.py", "protocol/test_presence.py", "tour/", "cluster/test_presence.py", "cluster/test_rolling.py")
# Modules that are split by combination of engines or by client.
SPLIT = ("cluster/", "events/", "parties/", "clients/test_scenarios.py")
PART = re.compile(r"[\[-]((?:sqlite|postgres|redis|nats)(?:\+\w+)?|js|python|rust)[\]-]")


def share(test):
    """The share of a test."""
    module = test.split("::")[0]
    part = PART.search(test) if any(folder in module for folder in SPLIT) else None
    return f"{module} {part[1]}" if part else module


def place(test):
    """Sort key: the slowest modules come first."""
    return next((n for n, name in enumerate(LONG) if name in test), len(LONG))


class Shares(LoadScopeScheduling):
    """Assigns shares to processes. As a plugin it also counts the tests that ran."""

    def __init__(self, config, log):
        super().__init__(config, log)
        config.option.loadscopereorder = False
        config.pluginmanager.register(self, "shares")
        self.run = collections.Counter()

    def _split_scope(self, nodeid):
        return share(nodeid)

    def pytest_runtest_logreport(self, report):
        if report.when == "teardown":
            self.run[report.nodeid] += 1

    def pytest_sessionfinish(self, session, exitstatus):
        asked = collections.Counter(self.collection)
        wrong = sorted(test for test in asked | self.run if self.run[test] != asked[test])
        if exitstatus == 0 and wrong:
            print(f"\n{len(wrong)} tests were not run exactly once: {wrong[:5]}")
            session.exitstatus = 1
