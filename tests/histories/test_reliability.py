"""RELIABILITY.md says what the records of the runs say."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_page_is_what_the_records_say():
    done = subprocess.run([sys.executable, ROOT / "scripts/reliability", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
