"""redis-py's own tests of pub/sub, from its source package, on RESP2 and RESP3."""
import os
import re
import subprocess
import sys

import pytest

from foreign.sources import source
from support.tavern import Tavern


@pytest.fixture(scope="module")
def server():
    """A server of their own: they count what all clients do."""
    with Tavern.dev() as server:
        yield server


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_tests_of_pubsub_pass(server, protocol):
    command = [
        sys.executable, "-m", "pytest", "tests/test_pubsub.py", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
        f"--redis-url=redis://127.0.0.1:{server.resp_port}/9", f"--protocol={protocol}",
        # Those of a cluster are about Redis Cluster.
        "-m", "not onlycluster",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        command, cwd=source("redis-py"), env=environment, capture_output=True, text=True, timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(re.search(r"(\d+) passed", run.stdout)[1]) >= 100, run.stdout
