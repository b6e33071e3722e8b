"""Servers for the suites, their logs when a test fails, and who runs what when several processes run them."""
import os
import pathlib

import pytest

from support.process import RUNNING
from support.redis_server import RedisServer
from support.shares import Shares, place
from support.tavern import Tavern


def pytest_addoption(parser):
    parser.addoption(
        "--subject", choices=["tavern", "redis"], default="tavern",
        help="what the Redis conversations are run on beside the oracle; `redis` checks the conversations themselves",
    )


# A browser takes a whole processor, and what is timed beside it would be wrong.
BROWSER = ("demo/", "dashboard/")

# These wait for leases, grace periods, backoff and heartbeats of real servers: on a busy machine they may be late.
TIMING = (
    "cluster/", "demo/", "dashboard/", "clients/test_scenarios.py", "clients/test_js_client.py", "events/test_batches.py",
    "events/test_kills.py", "events/test_retries.py", "events/test_takeover.py", "events/test_fairness.py",
    "parties/test_absence.py", "protocol/test_heartbeat.py", "protocol/test_stalls.py", "protocol/test_stop.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if any(folder in item.nodeid for folder in BROWSER):
            item.add_marker(pytest.mark.alone)
        if any(part in item.nodeid for part in TIMING):
            item.add_marker(pytest.mark.timing)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid))


def pytest_xdist_make_scheduler(config, log):
    return Shares(config, log)


def pytest_terminal_summary(terminalreporter):
    """Writes down which timing-sensitive tests failed, for a second run of those alone."""
    if wanted := os.environ.get("TIMING_FAILURES"):
        reports = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
        failed = {report.nodeid for report in reports}
        timing = {report.nodeid for report in reports if "timing" in report.keywords}
        # If any other test failed, the run has failed: nothing is tried again.
        again = sorted(timing) if timing == failed else []
        pathlib.Path(wanted).write_text("".join(f"tests/{test}\n" for test in again))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for server in RUNNING:
            if server.name != "redis-server":
                report.sections.append((f"log of {server.name}", server.log(4_000)))


@pytest.fixture(scope="session")
def redis_oracle():
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def dev():
    """One dev-mode server for all tests that share it; each test uses channels of its own."""
    with Tavern.dev() as server:
        yield server


@pytest.fixture(scope="session")
def serve():
    """One server as in production: deny by default, rights only by token and key."""
    with Tavern.serve() as server:
        yield server
