"""Builds the drivers of the clients whose languages need a toolchain that `scripts/setup all` installs.

Must hold: a missing toolchain fails the test; several test processes build a driver once.
"""
import fcntl
import functools
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = ROOT / "target" / "clients"
GO_DRIVER = BUILT / "go_driver"


def make_go():
    # Read-only modules: go.sum names exactly what is used.
    run(["go", "build", "-mod=readonly", "-buildvcs=false", "-o", GO_DRIVER, "./internal/driver"], ROOT / "clients/go")


MADE = {"go": make_go}


@functools.cache
def make(client):
    if client not in MADE:
        return
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        MADE[client]()


def run(command, folder, environment=None):
    """Runs a command and shows what it printed if it fails."""
    command = [str(part) for part in command]
    done = subprocess.run(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}"
    return done.stdout
