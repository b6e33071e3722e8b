"""How the tests are shared out among processes that run beside each other (`pytest -n 6`), and that each was run exactly once.

A share is a module, or what a module of the clusters, the events or the parties has about one engine or combination, or what one client of
ours must pass: what its tests start together stays together.
"""
import collections
import re

from xdist.scheduler import LoadScopeScheduling

# They take longest and begin first, so that nobody waits for one of them at the end.
LONG = ("clients/test_scenarios.py", "cluster/test_engine_failures.py", "protocol/test_presence.py", "tour/", "cluster/test_presence.py", "cluster/test_rolling.py")
# Modules that start servers for each combination, and for each client.
SPLIT = ("cluster/", "events/", "parties/", "clients/test_scenarios.py")
PART = re.compile(r"[\[-]((?:sqlite|postgres|redis|nats)(?:\+\w+)?|js|python|rust)[\]-]")


def share(test):
    """The share that a test belongs to."""
    module = test.split("::")[0]
    part = PART.search(test) if any(folder in module for folder in SPLIT) else None
    return f"{module} {part[1]}" if part else module


def place(test):
    """Where it stands among the others."""
    return next((n for n, name in enumerate(LONG) if name in test), len(LONG))


class Shares(LoadScopeScheduling):
    """Gives each process a share, and the next one when it is almost done. Counts, as a plugin, what was run."""

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
