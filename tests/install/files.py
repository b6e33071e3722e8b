"""The files under `packaging/` as whoever uses them reads them."""
import json
import pathlib
import re
import subprocess

from support.tavern import environment, program

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
SECRET = "0123456789abcdef0123456789abcdef"
# `limits.connections` and what is open beside them; `tavern doctor` wants as many.
SPARE_DESCRIPTORS = 200
SECONDS = {"s": 1, "min": 60, "m": 60}


def check(folder, *arguments, **variables):
    """What `tavern check` says: (exit code, the errors, the values by key)."""
    done = subprocess.run(
        [program(), "check", "--json", *arguments], cwd=folder, env=environment() | variables, capture_output=True,
        text=True, timeout=20,
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    return done.returncode, told["errors"], {value["key"]: value["value"] for value in told["values"]}


def unit(text):
    """A unit of systemd: for each section a dictionary of lists, as a key may stand several times."""
    sections, section = {}, None
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith(("#", ";")):
            continue
        if named := re.fullmatch(r"\[(\w+)\]", line):
            section = sections.setdefault(named[1], {})
            continue
        key, equals, value = line.partition("=")
        assert equals and section is not None, f"this line says nothing to systemd: {line}"
        section.setdefault(key.strip(), []).append(value.strip())
    return sections


def seconds(text):
    """A time as systemd and compose write it."""
    number, of = re.fullmatch(r"(\d+)(\w*)", text).groups()
    return int(number) * SECONDS[of or "s"]
