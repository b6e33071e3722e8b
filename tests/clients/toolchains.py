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
CSHARP_DRIVER = BUILT / "csharp_driver.exe"
CSHARP = ROOT / "clients/csharp"
# C# 7 with every warning as an error, except the one about documentation of obvious members.
MCS = ["mcs", "-langversion:7.2", "-warn:4", "-warnaserror", "-nowarn:1591", "-r:System.Net.Http.dll"]


def make_go():
    # Read-only modules: go.sum names exactly what is used.
    run(["go", "build", "-mod=readonly", "-buildvcs=false", "-o", GO_DRIVER, "./internal/driver"], ROOT / "clients/go")


def make_csharp():
    sources = [*sorted((CSHARP / "Tavern").glob("*.cs")), CSHARP / "tests/Driver.cs"]
    if CSHARP_DRIVER.exists() and all(source.stat().st_mtime < CSHARP_DRIVER.stat().st_mtime for source in sources):
        return
    run([*MCS, f"-out:{CSHARP_DRIVER}.new", *sources], CSHARP)
    (BUILT / (CSHARP_DRIVER.name + ".new")).replace(CSHARP_DRIVER)


MADE = {"go": make_go, "csharp": make_csharp}


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
