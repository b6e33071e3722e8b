"""A node name belongs to one server: a second one refuses to start, and a killed one is replaced at once."""
import subprocess
import time

from support.process import until
from support.tavern import Tavern

CONFIG = """
[nodes]
heartbeat_ms = 200
lease_ms = 60000
"""


def refused(server):
    """Starts a server that must not start; returns what it says."""
    done = subprocess.run(server.command(), cwd=server.folder, env=server.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_a_second_server_of_the_same_name_is_refused_and_a_killed_one_replaced(combination):
    with combination.settings() as settings:
        first, second, third = (settings.server(f'node = "same"\n{CONFIG}') for _ in range(3))
        with first:
            said = refused(second)
            assert '"same"' in said and f":{first.port} " in said and "--node" in said, said
            assert first.ready() and "fenced" not in first.log()
            first.kill()
            began = time.monotonic()
            with third:
                # Its lease lasts for a minute.
                assert time.monotonic() - began < 30


def test_a_server_that_another_one_of_its_name_has_replaced_ends(redis, schema):
    """On machines that do not hear each other: the bus is local."""
    options = ["--store", f"{redis.url}?prefix={schema}", "--bus", "local"]
    config = f'node = "same"\n{CONFIG}'
    with Tavern.dev(config, options) as first, Tavern.dev(config, options) as second:
        until(lambda: first.process.poll() is not None, "the first server to end", timeout=30)
        assert first.process.returncode != 0
        assert "another server runs with the name of this node" in first.log(), first.log()
        assert second.ready()
