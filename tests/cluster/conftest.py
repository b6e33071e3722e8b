"""Several servers on one folder, and a channel of its own for each test."""
import contextlib
import itertools
import pathlib
import shutil
import tempfile

import pytest

from support.tavern import Tavern

COUNT = itertools.count(1)


@contextlib.contextmanager
def folder():
    # With a space in its name: paths are not words.
    path = pathlib.Path(tempfile.mkdtemp(prefix="tavern-test cluster-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def cluster(count, config="", options=()):
    with folder() as data, contextlib.ExitStack() as stack:
        yield [stack.enter_context(Tavern.dev(config, options, data=data)) for _ in range(count)]


@pytest.fixture(scope="session")
def nodes():
    """Three servers that tests share."""
    with cluster(3) as servers:
        yield servers


@pytest.fixture
def channel():
    return f"room#c{next(COUNT)}x"
