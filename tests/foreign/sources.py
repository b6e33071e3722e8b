"""Where scripts/setup has unpacked the test suites of other projects. They are downloaded, never part of this project."""
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "target" / "foreign"


def source(path):
    found = FOLDER / path
    assert found.exists(), f"{found} is missing; run scripts/setup"
    return found
