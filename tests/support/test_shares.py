"""Shares group tests that use the same servers; tests that did not run exactly once are detected."""
import collections
import types

import pytest

from support.shares import LONG, Shares, place, share


@pytest.mark.parametrize("test, expected", [
    ("cluster/test_migration.py::test_a[postgres+nats]", "cluster/test_migration.py postgres+nats"),
    ("cluster/test_migration.py::test_b[name-redis+redis]", "cluster/test_migration.py redis+redis"),
    ("cluster/test_export.py::test_a[redis]", "cluster/test_export.py redis"),
    ("cluster/test_export.py::test_b", "cluster/test_export.py"),
    ("events/test_takeover.py::test_a[redis+redis-3]", "events/test_takeover.py redis+redis"),
    ("clients/test_all.py::test_a[one server-redis-cli]", "clients/test_all.py"),
    ("clients/test_scenarios.py::test_a[rust-burst]", "clients/test_scenarios.py rust"),
])
def test_a_share_is_a_module_or_its_part_for_one_engine(test, expected):
    assert share(test) == expected


def test_slow_modules_come_first():
    assert place(f"{LONG[1]}::test_a") < place("clients/test_all.py::test_a")


@pytest.mark.parametrize("run, found", [("ab", 0), ("a", 1), ("abb", 1), ("abc", 1), ("", 1)])
def test_a_test_that_did_not_run_exactly_once_is_detected(run, found):
    shares, session = Shares.__new__(Shares), types.SimpleNamespace(exitstatus=0)
    shares.collection, shares.run = ["a", "b"], collections.Counter(run)
    shares.pytest_sessionfinish(session, 0)
    assert session.exitstatus == found
