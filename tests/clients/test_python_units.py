"""The unit tests of the Python client (clients/python/tests) and its package build."""
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from .client_processes import MODULES

HOME = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"
FILES = sorted(path.name for path in (HOME / "tests").glob("test_*.py"))


def run(*command, **options):
    done = subprocess.run([sys.executable, *map(str, command)], text=True, capture_output=True, timeout=120, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_unit_tests_are_found():
    assert len(FILES) >= 7


@pytest.mark.parametrize("name", FILES)
def test_unit_tests_pass(name):
    assert " passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", HOME / "tests" / name, cwd=HOME)


def test_types_are_strict():
    # Strict also refuses a `type: ignore` without an error.
    checked = run("-m", "mypy", "--no-incremental", "tavern_client", "tests/wrong_uses.py", cwd=HOME)
    assert "no issues found" in checked


def test_types_please_pyright():
    pyright = MODULES / "node_modules" / "pyright" / "index.js"
    done = subprocess.run(["node", pyright, "--pythonpath", sys.executable, "tavern_client"], cwd=HOME, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_the_package_installs_offline_from_its_folder(tmp_path):
    shutil.copytree(HOME, tmp_path / "source", ignore=shutil.ignore_patterns("__pycache__"))
    site = tmp_path / "site"
    run("-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--target", site, tmp_path / "source")
    shown = run("-I", "-c", f"import sys; sys.path.insert(0, {str(site)!r}); import tavern_client.sync; print(tavern_client.__file__)")
    assert str(site) in shown and (site / "tavern_client" / "py.typed").exists()
    about = next(site.glob("tavern_client-*.dist-info"))
    metadata = (about / "METADATA").read_text()
    for member in ("License-Expression: Apache-2.0", "License-File: LICENSE", "Classifier: Typing :: Typed", "Keywords: presence"):
        assert member in metadata
    assert (about / "licenses" / "LICENSE").read_bytes() == (HOME.parents[1] / "LICENSE").read_bytes()


def test_builds_are_reproducible(tmp_path):
    build = "import sys; sys.path.insert(0, 'build'); import wheel_backend; print(wheel_backend.build_wheel(sys.argv[1]), wheel_backend.build_sdist(sys.argv[1]))"
    wheels = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        wheel = run("-c", build, tmp_path / name, cwd=HOME).split()[0]
        wheels.append((tmp_path / name / wheel).read_bytes())
    assert wheels[0] == wheels[1]
    with zipfile.ZipFile(tmp_path / "one" / wheel) as archive:
        assert archive.testzip() is None and any(name.endswith("RECORD") for name in archive.namelist())
