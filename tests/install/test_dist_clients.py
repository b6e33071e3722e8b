"""`make dist-clients` makes every package that the release publishes, each with what its users need."""
import hashlib
import os
import re
import subprocess
import tarfile
import zipfile

import pytest

from install.files import ROOT

VERSION = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), flags=re.M)[1]
# Each package, and the files in it.
PACKAGES = {
    f"tavern-client-{VERSION}.tgz": {"package/package.json", "package/src/index.js", "package/dist/tavern.cjs", "package/tavern.d.ts"},
    f"tavern_client-{VERSION}-py3-none-any.whl": {"tavern_client/__init__.py", "tavern_client/py.typed", f"tavern_client-{VERSION}.dist-info/METADATA"},
    f"tavern_client-{VERSION}.tar.gz": {f"tavern_client-{VERSION}/pyproject.toml"},
    f"tavern-client-{VERSION}.crate": {f"tavern-client-{VERSION}/src/lib.rs"},
    f"Tavern.Client.{VERSION}.nupkg": {"lib/netstandard2.0/Tavern.dll", "lib/netstandard2.0/Tavern.xml"},
    f"com.tavern.client-{VERSION}.tgz": {"package/package.json", "package/Tavern/Client.cs", "package/Tavern/Tavern.asmdef"},
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    out = tmp_path_factory.mktemp("packages") / "out"
    done = subprocess.run(["make", "dist-clients", f"OUT={out}"], cwd=ROOT, capture_output=True, text=True, timeout=300,
                          env=os.environ | {"CARGO_NET_OFFLINE": "true"})
    assert done.returncode == 0, done.stderr
    return out


def names(package):
    if package.suffix in (".whl", ".nupkg"):
        with zipfile.ZipFile(package) as archive:
            return set(archive.namelist())
    with tarfile.open(package) as archive:
        return set(archive.getnames())


def test_every_package_is_made_with_its_checksum(packages):
    assert {path.name for path in packages.iterdir()} == {*PACKAGES, "SHA256SUMS"}
    listed = dict(reversed(line.split(maxsplit=1)) for line in (packages / "SHA256SUMS").read_text().splitlines())
    assert set(listed) == set(PACKAGES)
    for name, digest in listed.items():
        assert hashlib.sha256((packages / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_its_files(packages, name):
    found = names(packages / name)
    assert PACKAGES[name] <= found
    plain = {path.rsplit("/", 1)[-1].removesuffix(".txt") for path in found}
    assert "LICENSE" in plain
    # A wheel has them as metadata.
    assert name.endswith(".whl") or {"README.md", "CHANGELOG.md"} <= plain, sorted(plain)
    assert not [path for path in found if "node_modules" in path or "__pycache__" in path or path.endswith(".test.mjs")]


def test_the_module_of_go_has_what_its_users_need():
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "go.mod", "go.sum"):
        assert (ROOT / "clients/go" / name).is_file(), name


@pytest.mark.parametrize("path, pattern", [
    ("clients/js/package.json", r'"version": "(.+)"'), ("clients/csharp/package.json", r'"version": "(.+)"'),
    ("clients/csharp/Tavern.nuspec", r"<version>(.+)</version>"), ("clients/python/pyproject.toml", r'^version = "(.+)"'),
    ("clients/python/tavern_client/__init__.py", r'__version__ = "(.+)"'),
])
def test_all_packages_have_the_version_of_the_server(path, pattern):
    assert re.search(pattern, (ROOT / path).read_text(), flags=re.M)[1] == VERSION


@pytest.mark.parametrize("path", ["CHANGELOG.md", "crates/client/CHANGELOG.md", *(f"clients/{name}/CHANGELOG.md" for name in ("js", "python", "go", "csharp"))])
def test_the_changelogs_have_one_section_for_the_version(path):
    sections = re.findall(r"^## (\S+)", (ROOT / path).read_text(), flags=re.M)
    assert sections.count(VERSION) == 1 and sections[0] == VERSION


def test_the_notes_of_a_release_are_its_section_of_the_changelog():
    notes = subprocess.run([ROOT / "scripts/changelog", VERSION], capture_output=True, text=True, check=True).stdout
    text = (ROOT / "CHANGELOG.md").read_text()
    assert notes.strip() in text and "\n## " not in notes and notes.startswith(text.split("\n## ")[1].split("\n", 1)[1].lstrip()[:40])
    missing = subprocess.run([ROOT / "scripts/changelog", "99.0.0"], capture_output=True, text=True)
    assert missing.returncode == 1 and "no section ## 99.0.0" in missing.stderr
