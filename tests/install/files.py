"""Parsers for the files under `packaging/`."""
import json
import pathlib
import re
import subprocess

from support.tavern import environment, program

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
SECRET = "0123456789abcdef0123456789abcdef"
# `limits.connections` plus other open files; `tavern doctor` requires this many.
SPARE_DESCRIPTORS = 200
SECONDS = {"s": 1, "min": 60, "m": 60}


def check(folder, *arguments, **variables):
    """The result of `tavern check`: (exit code, errors, values by key)."""
    code, report = check_report(folder, *arguments, **variables)
    return code, report["errors"], {value["key"]: value["value"] for value in report["values"]}


def check_report(folder, *arguments, **variables):
    """The exit code and the whole report of `tavern check`."""
    done = subprocess.run(
        [program(), "check", "--json", *arguments], cwd=folder, env=environment() | variables, capture_output=True,
        text=True, timeout=20,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def unit(text):
    """A systemd unit: for each section a dictionary of lists, because a key may occur several times."""
    sections, section = {}, None
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith(("#", ";")):
            continue
        if named := re.fullmatch(r"\[(\w+)\]", line):
            section = sections.setdefault(named[1], {})
            continue
        key, equals, value = line.partition("=")
        assert equals and section is not None, f"not a valid unit line: {line}"
        section.setdefault(key.strip(), []).append(value.strip())
    return sections


def seconds(text):
    """A duration in the notation of systemd and compose."""
    number, of = re.fullmatch(r"(\d+)(\w*)", text).groups()
    return int(number) * SECONDS[of or "s"]
