"""Fixtures: hosts in network namespaces, and a launcher. Without root or the tools, their tests are skipped."""

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
    with network(tmp_path_factory.mktemp("net"), 2) as hosts:
        yield hosts


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with all packages of the running one except tfdist."""
    return make_python(tmp_path_factory.mktemp("bare"), ["*tfdist*"])


@pytest.fixture
def launcher(net: Network, bare_python: Path, tmp_path: Path) -> Iterator[Launcher]:
    """Starts launches in the hub; fails if a test leaves a process on any host."""
    launcher = Launcher(net, bare_python, tmp_path)
    try:
        yield launcher
    finally:
        launcher.kill_started()
    assert launcher.left_over() == []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the tests of this folder to `make check`: they start whole programs."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("slow")
