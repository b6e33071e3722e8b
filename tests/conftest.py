"""Shared servers, server logs for failing tests, and the distribution of tests over processes."""
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
        help="the server compared with the oracle in the Redis conversations; `redis` checks the conversations themselves",
    )


# A browser uses a whole core: one for each core.
BROWSER = ("demo/", "dashboard/", "chromium")

# These depend on leases, grace periods, backoff and heartbeats of real servers and may be late on a busy machine.
TIMING = (
    "cluster/", "demo/", "dashboard/", "foreign/", "clients/test_scenarios.py", "clients/test_js_client.py", "events/test_batches.py",
    "events/test_kills.py", "events/test_retries.py", "events/test_takeover.py", "events/test_fairness.py",
    "parties/test_offline_members.py", "parties/test_restart.py", "parties/test_races.py", "radar/", "protocol/test_heartbeat.py",
    "protocol/test_stalls.py", "protocol/test_stop.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if any(folder in item.nodeid for folder in BROWSER):
            item.add_marker(pytest.mark.browser)
        if any(part in item.nodeid for part in TIMING):
            item.add_marker(pytest.mark.timing)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid))


def pytest_xdist_make_scheduler(config, log):
    return Shares(config, log)


def pytest_terminal_summary(terminalreporter):
    """Writes the failed timing-sensitive tests to a file, for a second run alone."""
    if wanted := os.environ.get("TIMING_FAILURES"):
        reports = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])]
        failed = {report.nodeid for report in reports}
        timing = {report.nodeid for report in reports if "timing" in report.keywords}
        # If any other test failed, nothing is retried.
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
    """A shared dev-mode server; each test uses its own channels."""
    with Tavern.dev() as server:
        yield server


@pytest.fixture(scope="session")
def serve():
    """A shared server in production mode: everything is denied unless a token or key allows it."""
    with Tavern.serve() as server:
        yield server
