"""`make install` into a folder, man pages, shell completions, and `tavern ready`."""
import os
import re
import shutil
import subprocess

import pytest

from install.files import ROOT, unit
from support.process import free_port
from support.tavern import environment, program

SHELLS = ("bash", "zsh", "fish", "elvish", "powershell")


def tavern(*arguments, **options):
    return subprocess.run([program(), *arguments], env=environment(), capture_output=True, text=True, timeout=20, **options)


def commands(*of):
    """All commands and subcommands in the program's help."""
    text = tavern(*of, "--help").stdout
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", text, flags=re.M)
    names = re.findall(r"^  ([a-z-]+)", listed[1], flags=re.M) if listed else []
    below = [(*of, name) for name in names if name != "help"]
    return below + [deeper for one in below for deeper in commands(*one)]


def install(**variables):
    given = [f"{name}={value}" for name, value in variables.items()]
    return subprocess.run(["make", "install", f"BIN={program()}", *given], cwd=ROOT, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def everything():
    found = commands()
    assert ("serve",) in found and ("key", "create") in found and len(found) > 25
    return found


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("root")
    done = install(DESTDIR=root, PREFIX="/opt/tavern", SYSCONFDIR="/opt/etc")
    assert done.returncode == 0, done.stderr
    return root


def test_all_files_are_installed_below_the_folder(root):
    prefix = root / "opt/tavern"
    expected = {
        "bin/tavern": 0o755,
        "lib/systemd/system/tavern.service": 0o644,
        "lib/sysusers.d/tavern.conf": 0o644,
        "share/man/man1/tavern.1": 0o644,
        "share/man/man1/tavern-serve.1": 0o644,
        "share/bash-completion/completions/tavern": 0o644,
        "share/zsh/site-functions/_tavern": 0o644,
        "share/fish/vendor_completions.d/tavern.fish": 0o644,
        "share/doc/tavern/tavern.json": 0o644,
        "share/doc/tavern/alerts.yaml": 0o644,
    }
    for name, mode in expected.items():
        assert (prefix / name).stat().st_mode & 0o777 == mode, name
    assert (root / "opt/etc/tavern/tavern.env").stat().st_mode & 0o777 == 0o600
    assert {path.name for path in root.iterdir()} == {"opt"}
    ran = subprocess.run([prefix / "bin/tavern", "--version"], capture_output=True, text=True, timeout=20)
    assert ran.stdout.startswith("tavern ")


def test_the_service_starts_the_installed_program(root):
    service = unit((root / "opt/tavern/lib/systemd/system/tavern.service").read_text())["Service"]
    command_line = service["ExecStart"][0].split()
    assert command_line == ["/opt/tavern/bin/tavern", "serve", "--config", "/opt/etc/tavern/tavern.toml"]
    assert service["EnvironmentFile"] == ["-/opt/etc/tavern/tavern.env"]


def test_reinstalling_keeps_the_configuration(root):
    config, secrets = (root / f"opt/etc/tavern/tavern.{end}" for end in ("toml", "env"))
    config.write_text("listen = \"127.0.0.1:1\"\n")
    secrets.write_text("TAVERN_SECRET=mine\n")
    (root / "opt/tavern/bin/tavern").write_text("old")
    done = install(DESTDIR=root, PREFIX="/opt/tavern", SYSCONFDIR="/opt/etc")
    assert done.returncode == 0, done.stderr
    assert config.read_text() == "listen = \"127.0.0.1:1\"\n" and secrets.read_text() == "TAVERN_SECRET=mine\n"
    assert (root / "opt/tavern/bin/tavern").stat().st_size == os.stat(program()).st_size


@pytest.mark.parametrize("wrong", ["opt", "/opt/a b", "/opt/%i"])
def test_a_prefix_unusable_in_a_unit_is_rejected(wrong, tmp_path):
    done = install(DESTDIR=tmp_path, PREFIX=wrong)
    assert done.returncode != 0 and "absolute paths" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_command_has_a_man_page(root, everything):
    pages = root / "opt/tavern/share/man/man1"
    for command in everything:
        assert (pages / f"tavern-{'-'.join(command)}.1").exists(), command
    text = tavern("man").stdout
    assert text.startswith((".ie", ".TH", ".\\\"")) and "tavern" in text
    if man := shutil.which("man"):
        shown = subprocess.run(
            [man, "-l", pages / "tavern-serve.1"], env=os.environ | {"MANPAGER": "cat", "LC_ALL": "C.UTF-8", "MANWIDTH": "100"},
            capture_output=True, text=True, timeout=20,
        )
        assert shown.returncode == 0 and "HOST:PORT" in shown.stdout and "SYNOPSIS" in shown.stdout


def test_man_pages_into_a_missing_folder_fail(tmp_path):
    done = tavern("man", tmp_path / "none")
    assert done.returncode == 1 and "cannot write the pages" in done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_completions_contain_every_command(shell, everything):
    done = tavern("completions", shell)
    assert done.returncode == 0
    for command in everything:
        assert command[-1] in done.stdout, command


def test_bash_completion_works(tmp_path):
    script = tmp_path / "tavern.bash"
    script.write_text(tavern("completions", "bash").stdout)
    ask = f"""
source "{script}"
COMP_WORDS=(tavern key cre) COMP_CWORD=2 COMP_LINE='tavern key cre' COMP_POINT=14
_tavern tavern cre key
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, timeout=20)
    assert done.stdout.split() == ["create"], done.stderr


def test_an_unknown_shell_is_rejected_with_the_known_ones():
    done = tavern("completions", "dos")
    assert done.returncode == 2 and "fish" in done.stderr


def test_completions_into_a_closed_pipe_succeed():
    line = f"set -o pipefail; {program()} completions zsh | head -c 1 >/dev/null"
    assert subprocess.run(["bash", "-c", line], env=environment(), timeout=20).returncode == 0


def test_ready_reports_the_state_of_the_server(dev):
    done = tavern("ready", "--url", dev.url)
    assert (done.returncode, done.stdout) == (0, "ready\n")


def test_an_unreachable_server_is_not_ready():
    done = tavern("ready", "--url", f"http://127.0.0.1:{free_port()}", "--wait", "1")
    assert done.returncode == 1 and "is a server running there?" in done.stderr
