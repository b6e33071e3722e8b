"""A short run: it writes a history that the judge can read, and every guarantee was looked at."""
import asyncio
import subprocess
import sys

import pytest
from judge import GUARANTEES, judge, read
from torture.run import torture

# What needs a longer run: a server that died or was suspended past its lease while nothing else happened.
RARE = {"users of a dead server go offline", "suspended servers announce their clients"}


@pytest.mark.alone
def test_a_run_writes_a_history_that_can_be_judged(tmp_path):
    path = tmp_path / "history.jsonl.gz"
    result = asyncio.run(torture("sqlite+local", 7, 9, size=0.15, history=path))
    assert result.faults
    verdicts = judge(read(path))
    assert [verdict.violations for verdict in verdicts if verdict.violations] == []
    assert {verdict.name for verdict in verdicts if not verdict.checked} <= RARE and len(verdicts) == len(GUARANTEES)
    judged = subprocess.run([sys.executable, "tools/judge", path], cwd=str(__file__).split("/tests/")[0], capture_output=True, text=True)
    assert judged.returncode == 0 and "no acknowledged message is lost without a gap" in judged.stdout, judged
