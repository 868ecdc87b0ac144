"""Commands where no more processes or threads can be started."""

import errno
import os
import subprocess
import sys
import tempfile
import threading

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.launch.threads import is_limit, start_thread

DROPPED, KEPT = "-sys_resource,-sys_admin", "+dac_override,+dac_read_search"
LIMITED = [
    "setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", f"--inh-caps={DROPPED},{KEPT}",
    f"--ambient-caps={KEPT}", f"--bounding-set={DROPPED}", "prlimit",
]  # fmt: skip
"""Run a command as a user whom limits bind, unlike root, and who can still read our files."""


LAUNCH = ("launch", "--strategy", "one-device", "--", "true")
BENCH = ("bench", "--suite", "smoke", "--arm", "one-device", "--rounds", "1", "--incarnations", "1", "--turn", "0.5s")


def refuse(_thread):
    raise RuntimeError("can't start new thread")


@pytest.fixture
def folder():
    """A folder of that user, on a way that nobody needs a capability for."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, 65533, 65533)
        yield folder


def test_a_refused_thread_is_a_sentence(monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(TfdistError, match="raise 'ulimit -u'"):
        start_thread(lambda: None, "one")


def test_only_limits_of_processes_are_recognized():
    assert is_limit(BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
    assert is_limit(RuntimeError("can't start new thread"))
    assert not is_limit(BlockingIOError(errno.EAGAIN, "write could not complete without blocking"))
    assert not is_limit(RuntimeError("a bug"))


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run([*LIMITED, "--nproc=1", "true"], capture_output=True).returncode != 0, reason="needs root"
)
@pytest.mark.parametrize(
    ("command", "number"),
    [
        *((LAUNCH, number) for number in (1, 5)),
        (("doctor",), 3),
        (BENCH, 5),
        *(
            pytest.param(command, number, marks=pytest.mark.thorough)
            for command, numbers in ((LAUNCH, (3, 7)), (("doctor",), (1, 5, 6)), (BENCH, (1,)))
            for number in numbers
        ),
    ],
)
def test_a_command_names_the_limit(command, number, folder):
    env = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder)}
    tfdist = [sys.executable, "-m", "tfdist.cli", *command]
    limited = [*LIMITED, f"--nproc={number}", *tfdist]
    done = subprocess.run(limited, cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "ulimit -u" in done.stdout + done.stderr
