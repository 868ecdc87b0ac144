"""Fixtures: hosts in network namespaces, and a launcher. Without root or the tools, their tests are skipped,
or fail with HOSTS_REQUIRED=1."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from .launcher import Launcher, make_python
from .namespaces import Network, missing, network


def hosts_fixture(number: int, scope: Literal["session", "module"]) -> Any:
    """A fixture: hosts h1, h2, ..., for all tests of the scope."""

    @pytest.fixture(scope=scope)
    def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
        why = missing()
        if why:
            (pytest.fail if "HOSTS_REQUIRED" in os.environ else pytest.skip)(f"no hosts in network namespaces: {why}")
        with network(tmp_path_factory.mktemp("net"), number) as net:
            yield net

    return hosts


net = hosts_fixture(2, "session")


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
