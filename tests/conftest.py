"""What tests share: what is left over of a run can be seen by a mark in the environment of its processes.

Signals that the tests send are not ignored by what they start, though a job in the background ignores them (nohup).
"""

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def survivors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[str]]]:
    """A function that lists the processes which this test caused to start and which still run, itself left out."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv("TFDIST_TEST_MARK", mark)

    def marked() -> list[str]:
        found = []
        for process in psutil.process_iter():
            try:
                alive = process.status() != psutil.STATUS_ZOMBIE
                if process.pid != os.getpid() and alive and process.environ().get("TFDIST_TEST_MARK") == mark:
                    found.append(f"{process.pid}: {process.cmdline()}")
            except psutil.Error:
                continue
        return found

    yield marked
    for line in marked():  # of a test that has failed
        with suppress(ProcessLookupError):
            os.kill(int(line.partition(":")[0]), signal.SIGKILL)
