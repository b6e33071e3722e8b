"""`make dist`: the tarball runs in place, the Debian package has everything, checksums and SBOM are right."""
import functools
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading

import pytest
import yaml

from install.files import ROOT, unit
from support.tavern import environment, program


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist") / "out"
    done = subprocess.run(["make", "dist", f"BIN={program()}", f"OUT={out}"], cwd=ROOT, capture_output=True, text=True, timeout=300,
                          env=os.environ | {"LEVEL": "1"})
    assert done.returncode == 0, done.stderr
    return out


def one(folder, ending):
    (found,) = (path for path in folder.iterdir() if path.name.endswith(ending))
    return found


def test_the_tarball_runs_in_place(dist, tmp_path):
    with tarfile.open(one(dist, ".tar.gz")) as archive:
        assert all(member.uid == 0 and not member.name.startswith(("/", "..")) for member in archive)
        archive.extractall(tmp_path, filter="data")
    (top,) = tmp_path.iterdir()
    said = subprocess.run([top / "bin/tavern", "--version"], capture_output=True, text=True, env=environment(), timeout=20)
    assert said.stdout.startswith("tavern ")
    for name in ("README.md", "LICENSE", "etc/tavern/tavern.toml", "share/man/man1/tavern.1", "share/doc/tavern/sbom.cdx.json",
                 "share/bash-completion/completions/tavern", "lib/systemd/system/tavern.service"):
        assert (top / name).is_file(), name
    # Without symbols.
    assert b".debug_line" not in subprocess.check_output(["objdump", "-h", top / "bin/tavern"])


def test_the_debian_package_is_complete(dist, tmp_path):
    package = one(dist, ".deb")
    fields = subprocess.check_output(["dpkg-deb", "-f", package], text=True)
    assert re.search(r"^Depends: libc6 \(>= 2\.\d+\), libgcc-s1$", fields, flags=re.M)
    subprocess.run(["dpkg-deb", "-x", package, tmp_path / "root"], check=True)
    subprocess.run(["dpkg-deb", "-e", package, tmp_path / "control"], check=True)
    service = unit((tmp_path / "root/usr/lib/systemd/system/tavern.service").read_text())["Service"]
    assert service["ExecStart"][0].split()[0] == "/usr/bin/tavern" and (tmp_path / "root/usr/bin/tavern").exists()
    for name in (tmp_path / "control/conffiles").read_text().split():
        assert (tmp_path / "root" / name.lstrip("/")).is_file(), name
    assert (tmp_path / "root/etc/tavern/tavern.env").stat().st_mode & 0o777 == 0o600
    for script in ("postinst", "prerm", "postrm"):
        subprocess.run(["sh", "-n", tmp_path / "control" / script], check=True)


def test_the_package_installs_with_dpkg(dist, tmp_path):
    """Into a folder of its own, without its scripts, which would change this machine."""
    root = tmp_path / "root"
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    done = subprocess.run(
        ["dpkg", f"--root={root}", "--force-not-root", "--force-depends", f"--log={tmp_path}/log", "--unpack", one(dist, ".deb")],
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (root / "usr/bin/tavern").exists()


def test_checksums_are_those_of_the_files(dist):
    listed = dict(reversed(line.split(maxsplit=1)) for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert set(listed) == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}
    for name, digest in listed.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest, name


@pytest.fixture
def releases(dist, tmp_path):
    """The address of a server with the files of a release, and their folder."""
    version = re.search(r"tavern-(.+?)-", one(dist, ".tar.gz").name)[1]
    folder = tmp_path / "releases" / f"v{version}"
    shutil.copytree(dist, folder)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path / "releases")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder, version
        server.shutdown()


def install(releases, version, prefix):
    given = environment() | {"TAVERN_RELEASES": releases, "PREFIX": str(prefix), "no_proxy": "*"}
    return subprocess.run(["sh", ROOT / "packaging/install.sh", version], env=given, capture_output=True, text=True, timeout=60)


def test_the_install_script_installs_the_program(releases, tmp_path):
    url, _, version = releases
    done = install(url, version, tmp_path / "prefix")
    assert done.returncode == 0, done.stderr
    assert f"tavern {version}" in done.stdout
    assert (tmp_path / "prefix/bin/tavern").stat().st_mode & 0o111
    assert (tmp_path / "prefix/share/man/man1/tavern.1").exists()
    again = install(url, version, tmp_path / "prefix")
    assert again.returncode == 0, again.stderr


def test_the_install_script_refuses_what_has_another_checksum(releases, tmp_path):
    url, folder, version = releases
    with one(folder, ".tar.gz").open("ab") as archive:
        archive.write(b"x")
    done = install(url, version, tmp_path / "prefix")
    assert done.returncode == 1 and "nothing was installed" in done.stderr
    assert not (tmp_path / "prefix").exists()


@pytest.mark.parametrize("version, message", [("99.0.0", "cannot download"), ("@VERSION@", "set TAVERN_RELEASES")])
def test_the_install_script_says_what_is_wrong(releases, tmp_path, version, message):
    done = install(releases[0], version, tmp_path / "prefix")
    assert done.returncode == 1 and message in done.stderr


def test_the_sbom_names_what_is_linked_and_nothing_else(dist):
    bom = json.loads(one(dist, ".cdx.json").read_text())
    assert (bom["bomFormat"], bom["specVersion"], bom["metadata"]["component"]["name"]) == ("CycloneDX", "1.5", "tavern")
    parts = {part["name"]: part for part in bom["components"]}
    assert {"tokio", "rusqlite", "tavern-hub"} <= set(parts)
    # Only tests and the build script use these.
    assert not {"proptest", "loom", "pulldown-cmark", "tavern-sim", "tavern-bench"} & set(parts)
    refs = {part["bom-ref"] for part in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
    for entry in bom["dependencies"]:
        assert entry["ref"] in refs and set(entry["dependsOn"]) <= refs
    for name, part in parts.items():
        assert part["licenses"], name
        assert name.startswith("tavern") or part["hashes"][0]["alg"] == "SHA-256", name


@pytest.mark.parametrize("name", ["ci", "release"])
def test_workflows_use_the_toolchain_and_targets_of_the_repository(name):
    text = (ROOT / ".github/workflows" / f"{name}.yml").read_text()
    asked = re.search(r'^rust-version = "(.+)"', (ROOT / "Cargo.toml").read_text(), flags=re.M)[1]
    assert set(re.findall(r"toolchain install (\S+)", text)) == {asked}
    steps = [step["run"] for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"] if "run" in step]
    targets = {target for step in steps for target in re.findall(r"^(?:make (\S+)|\.ci/run$)", step, flags=re.M)}
    # An empty name stands for the same script as on every other machine.
    assert targets == {"ci": {""}, "release": {"audit", "dist", "dist-clients"}}[name]
    targets -= {""}
    scripts = {script for step in steps for script in re.findall(r"(?:^|\s)((?:scripts|packaging)/[\w.-]+)", step)}
    assert all((ROOT / script).is_file() for script in scripts), scripts
    known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    assert targets <= set(known)
