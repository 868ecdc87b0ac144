"""Hosts and a launcher for the tests with real hosts; without root or the tools those tests are skipped, with why."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .launcher import Launcher, make_python
from .namespaces import Network, missing, network


@pytest.fixture(scope="session")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Two hosts, h1 and h2, for all tests of the session."""
    why = missing()
    if why:
        pytest.skip(f"no hosts in network namespaces: {why}")
    with network(tmp_path_factory.mktemp("net"), 2) as made:
        yield made


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with all packages of this one but tfdist."""
    return make_python(tmp_path_factory.mktemp("bare"), ["*tfdist*"])


@pytest.fixture
def launcher(net: Network, bare_python: Path, tmp_path: Path) -> Iterator[Launcher]:
    """Starts launches in the hub. Whatever a test did, nothing of it may be left on any host."""
    one = Launcher(net, bare_python, tmp_path)
    try:
        yield one
    finally:
        one.kill_started()
    assert one.left_over() == []
