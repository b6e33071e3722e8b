"""A webhook consumer in Python and one in Node, as the documentation shows them: they get every event once, in order, and refuse
forged requests."""
import subprocess
import sys

from install.files import ROOT


def test_the_consumers_of_the_guide_work_as_written():
    run = [sys.executable, ROOT / "scripts/run-docs", ROOT / "docs/guides/webhooks.md"]
    done = subprocess.run(run, cwd=ROOT, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "python: created {'order': 1}" in done.stdout and "node: created { order: 1 }" in done.stdout
