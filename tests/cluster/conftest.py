"""Every test with a `combination` runs on each combination of engines, or on those in `only`, which states the reason.

Tests of one combination run one after another and share its servers; each has its own channel.
"""
import itertools

import pytest

from cluster.combination import ALL, Combination, Engines

COUNT = itertools.count(1)


def pytest_generate_tests(metafunc):
    if "combination" in metafunc.fixturenames:
        only = metafunc.definition.get_closest_marker("only")
        names = ALL if only is None else only.args
        metafunc.parametrize("combination", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def engines():
    with Engines() as started:
        yield started


@pytest.fixture(scope="session")
def postgres(engines):
    return engines.server("postgres")


@pytest.fixture(scope="session")
def nats(engines):
    return engines.server("nats")


@pytest.fixture(scope="session")
def redis(engines):
    return engines.server("redis")


@pytest.fixture
def schema():
    """An unused schema or prefix."""
    return f"schema_{next(COUNT)}"


@pytest.fixture(scope="session")
def combination(request, engines):
    return Combination(request.param, engines)


@pytest.fixture(scope="session")
def nodes(combination):
    """Three shared servers."""
    with combination.cluster(3) as servers:
        yield servers


@pytest.fixture
def channel():
    return f"room#c{next(COUNT)}x"


@pytest.fixture
def room(channel):
    """A channel of a kind with a short grace period."""
    return channel.replace("room#", "game#")
