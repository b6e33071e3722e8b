"""The Rust client: its crate, packed and used by an empty project. Its other tests run with those of the workspace."""
import os
import shutil
import subprocess
import tarfile
import time

import pytest

from .test_pages import chat
from .toolchains import BUILT, ROOT, run

MANIFEST = """[package]
name = "example"
version = "0.1.0"
edition = "2024"

[dependencies]
tavern-client = { path = "../crate" }
tokio = { version = "1", features = ["rt-multi-thread", "macros"] }

[workspace]
"""
# The dependencies are compiled once, not for each test.
ENVIRONMENT = os.environ | {"CARGO_TARGET_DIR": str(BUILT / "rust"), "CARGO_PROFILE_DEV_DEBUG": "0"}


@pytest.fixture(scope="module")
def project(tmp_path_factory, dev):
    """An empty project with the packed crate and the chat of its page."""
    home = tmp_path_factory.mktemp("rust")
    run(["cargo", "package", "--offline", "--quiet", "--no-verify", "--allow-dirty", "-p", "tavern-client", "--target-dir", home / "packed"], ROOT)
    (packed,) = (home / "packed/package").glob("*.crate")
    with tarfile.open(packed) as archive:
        archive.extractall(home, filter="data")
    (home / packed.stem).rename(home / "crate")
    (home / "app/src").mkdir(parents=True)
    (home / "app/Cargo.toml").write_text(MANIFEST)
    (home / "app/src/main.rs").write_text(chat("rust").replace("http://127.0.0.1:7400", dev.url))
    # The versions that setup has downloaded.
    shutil.copy(ROOT / "Cargo.lock", home / "app")
    return home


def test_the_crate_has_what_users_need_and_nothing_of_this_repository(project):
    crate = project / "crate"
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "src/lib.rs"):
        assert (crate / name).exists(), name
    assert (crate / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    manifest = (crate / "Cargo.toml").read_text()
    assert "tavern-domain" not in manifest and "tavern-wire" not in manifest
    for member in ("description", "license", "keywords", "categories", "readme"):
        assert f"\n{member} = " in manifest, member


def test_the_chat_of_the_page_runs_in_an_empty_project(project):
    run(["cargo", "build", "--offline", "--quiet"], project / "app", ENVIRONMENT)
    chat = subprocess.Popen([BUILT / "rust/debug/example", "ann"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        chat.stdin.write("hello\n")
        chat.stdin.flush()
        lines, end = [], time.monotonic() + 20
        while not {"ann: hello", 'present: ["ann"]'} <= set(lines) and time.monotonic() < end:
            lines.append(chat.stdout.readline().rstrip())
        assert {"ann: hello", 'present: ["ann"]'} <= set(lines)
        chat.stdin.close()
        assert chat.wait(10) == 0
    finally:
        chat.kill()
        chat.wait()


@pytest.mark.parametrize("features", ["", "webpki-roots", "native-roots", "webpki-roots,native-roots"])
def test_the_crate_compiles_with_each_choice_of_authorities(features):
    run(["cargo", "check", "--offline", "--quiet", "-p", "tavern-client", "--no-default-features", "--features", features], ROOT)
