"""The reference has an entry for every REST operation, metric and command of the program. (Configuration keys and error codes are
compared by Rust tests.)"""
import os
import subprocess
import sys

from install.files import ROOT
from support.tavern import program


def test_the_pages_are_those_of_the_program():
    """Fails with advice: `make reference` writes them."""
    done = subprocess.run([sys.executable, ROOT / "scripts/reference", "--check"], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"TAVERN_BIN": str(program())})
    assert done.returncode == 0, done.stderr


def test_the_environment_reads_lists_as_documented(tmp_path):
    page = (ROOT / "docs/reference/configuration.md").read_text()
    assert "A list is written `a,b` in variables and flags" in page
    said = subprocess.run([program(), "check", "--dev", "--json", "--set", "trusted_proxies=10.0.0.1,10.0.0.2"], cwd=tmp_path,
                          env={"PATH": os.environ["PATH"], "TAVERN_ORIGINS": "https://a.example,https://b.example"},
                          capture_output=True, text=True, timeout=20)
    assert '["https://a.example","https://b.example"]' in said.stdout.replace(" ", ""), said.stdout
    assert said.returncode == 0, said.stderr
