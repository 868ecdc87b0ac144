"""Fixtures for all tests.

A shell starts background jobs (nohup, `&`) with signals ignored, and child processes inherit that. The signals that
tests send get their default handlers back here.
"""

import gc
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from .processes import MARK, marked_processes

# A busy machine makes examples late, whatever they test.
settings.register_profile("thorough", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("tests", settings.get_profile("thorough"), max_examples=25)
settings.load_profile("tests")

sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
"""For a format that no schema here has, jsonschema would import it, which takes two seconds in each process."""

gc.disable()  # until the tests are collected: modules and tests are no garbage, and looking through them takes seconds

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests come first, so that at the end no process waits for a long test of another."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Garbage is collected again, without looking through what stays."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Benches of a module of tests add nothing to the user's history of benches, nor to that of other modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def no_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report is written with empty files in place of its charts, whose drawing takes most of the time."""
    monkeypatch.setattr("tfdist.bench.report.write.to_png", lambda _: b"")


@pytest.fixture
def odd_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, whose name a shell would take apart, without a TF_CONFIG around it."""
    folder = tmp_path / "it's; new* $HOME"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    return folder


@pytest.fixture
def survivors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """A function that lists the processes which this test started, directly or not, and which still run."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)

    def listed() -> list[str]:
        lines = []
        for process in marked_processes(mark):
            with suppress(psutil.Error):
                lines.append(f"{process.pid}: {process.cmdline()}")
        return lines

    yield listed
    for process in marked_processes(mark):  # left by a failed test
        with suppress(psutil.Error):
            process.kill()
