"""Decides whether a recorded history kept the guarantees. Imports nothing of the system that it judges."""
from . import facts, messages, presence, stored  # noqa: F401 (they register their checks)
from .history import read  # noqa: F401
from .verdict import GUARANTEES, judge  # noqa: F401
