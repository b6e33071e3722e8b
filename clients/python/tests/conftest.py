"""Unit tests of the Python client; they need no Tavern server and import the package from this folder."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
