"""The unit tests of the Python client: no server of the project is needed. They import the package from this folder."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
