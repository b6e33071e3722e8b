"""A short torture of three servers on one folder, with every kind of fault that a folder can have, belongs to the tests."""
import asyncio

from torture.run import torture


def test_a_short_torture_breaks_no_promise(tmp_path):
    result = asyncio.run(torture("sqlite+local", seed=1, seconds=16, size=0.25, say=lambda text: None, keep=tmp_path))
    broken = [(verdict.name, verdict.violations[:3]) for verdict in result.verdicts if verdict.violations]
    assert (broken, result.broke) == ([], [])
    assert sum(result.faults.values()) >= 3
    looked_at = {verdict.name: verdict.looked_at for verdict in result.verdicts}
    assert looked_at["a word comes once, in its speaker's order"] > 500
