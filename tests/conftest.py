"""Shared servers, server logs for failing tests, which tests run, and their distribution over processes."""
import collections
import json
import pathlib
import signal

import pytest

from support import parts
from support.process import RUNNING
from support.redis_server import RedisServer
from support.shares import Shares, place
from support.tavern import Tavern


# A shell ignores SIGINT for what it starts in the background, and every process started from here would inherit that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_addoption(parser):
    parser.addoption("--part", choices=["test", "rest", "all"], default="all", help="what `make test` runs, what `make test-all` adds, or both")
    parser.addoption("--left-out", help="a file for the number of tests that `--part test` leaves out, by reason")
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
    "parties/test_offline_members.py", "parties/test_restart.py", "parties/test_races.py", "pusher/", "radar/",
    "protocol/test_heartbeat.py",
    "protocol/test_stalls.py", "protocol/test_stop.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if any(folder in item.nodeid for folder in BROWSER):
            item.add_marker(pytest.mark.browser)
        if any(part in item.nodeid for part in TIMING):
            item.add_marker(pytest.mark.timing)
            item.user_properties.append(("timing", "yes"))
        item.user_properties.append(("nodeid", item.nodeid))
    select(config, items)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid))


def pytest_xdist_make_scheduler(config, log):
    return Shares(config, log)


def select(config, items):
    """Keeps the tests of the chosen part."""
    part = config.getoption("part")
    if part == "all":
        return
    reasons = parts.left_out(items)
    kept = [item for item in items if (item in reasons) == (part == "rest")]
    config.hook.pytest_deselected(items=[item for item in items if (item in reasons) != (part == "rest")])
    items[:] = kept
    wanted = config.getoption("left_out")
    if part == "test" and wanted and not hasattr(config, "workerinput"):
        pathlib.Path(wanted).write_text(json.dumps(collections.Counter(reasons.values())))


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
