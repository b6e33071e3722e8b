"""`make cluster` without keyboard input: the table shows what happens, and the temporary folders are removed."""
import os
import pathlib
import re
import subprocess
import sys

from support.tavern import program

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/cluster"


def run(*options, folder, path=os.environ["PATH"]):
    environment = {"PATH": path, "TMPDIR": str(folder), "TAVERN_BIN": str(program())}
    return subprocess.run([sys.executable, SCRIPT, *options], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def rows(text):
    """The last table, by node."""
    last = text[text.rindex("NODE"):].splitlines()[1:4]
    return {line[:6].strip(): (line[6:34].strip(), line[34:].split()) for line in last}


def test_a_killed_node_is_taken_over(tmp_path):
    done = run("sqlite", "--for", "9", "--kill-at", "2", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "node b: killed" in done.stdout
    assert re.search(r"node b: gone, taken over by [ac] in \d\.\d s", done.stdout), done.stdout
    assert sum(map(int, re.findall(r"clients: (\d+) new sessions", done.stdout))) == 6
    table = rows(done.stdout)
    assert [table[name][0] for name in "abc"] == ["ready", "gone", "ready"]
    for name in "ac":
        sessions, channels, present, into, out = table[name][1][:5]
        assert present == "18" and int(sessions) >= 6 and int(channels) == 3 and int(into) > 0 and int(out) > 0
    assert list(tmp_path.iterdir()) == [], "the folders are removed"


def test_a_cluster_on_postgres_needs_nothing_else(tmp_path):
    (tmp_path / "bin").mkdir()
    nats = tmp_path / "bin" / "nats-server"
    nats.write_text("#!/bin/sh\nexit 1\n")
    nats.chmod(0o755)
    done = run("postgres", "--for", "6", folder=tmp_path, path=f"{nats.parent}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout + done.stderr
    table = rows(done.stdout)
    assert [table[name][0] for name in "abc"] == ["ready"] * 3
    for name in "abc":
        present, into, out, bus = table[name][1][2:6]
        assert present == "18" and int(into) > 0 and int(out) > 0 and int(bus) > 0


def test_a_missing_engine_is_reported_with_a_hint(tmp_path):
    (tmp_path / "bin").mkdir()
    done = run("redis", "--for", "1", folder=tmp_path, path=str(tmp_path / "bin"))
    assert done.returncode == 1 and "Redis is required" in done.stderr
