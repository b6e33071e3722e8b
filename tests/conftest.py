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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if any(folder in item.nodeid for folder in BROWSER):
            item.add_marker(pytest.mark.alone)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place(item.nodeid))


def pytest_xdist_make_scheduler(config, log):
    return Shares(config, log)


def pytest_terminal_summary(terminalreporter):
    """Tells which failed to whoever wants to run them again."""
    if wanted := os.environ.get("FAILED_TESTS"):
        failed = {report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])}
        pathlib.Path(wanted).write_text("".join(f"tests/{test}\n" for test in sorted(failed)))


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
