"""Stop requests to runs whose folder anybody may have written. Whoever is named there is a process of the test."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import save_json
from tfdist.launch.runs.launcher import Launcher, read_launcher, terminate, this_launcher
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import RunState, read_run
from tfdist.launch.runs.stop import request_stop


@pytest.fixture
def process():
    """A process that runs until it is stopped."""
    started = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    yield started
    started.kill()
    started.wait()
    started.stdin.close()


def _launcher_of(pid: int) -> Launcher:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return replace(this_launcher(), pid=pid, ticks=int(stat[19]))


def _save(run_dir: RunDir, **changes: object) -> None:
    save_json(run_dir.launcher, {**this_launcher().to_json(), **changes})


def test_a_launcher_without_a_socket_gets_a_signal(process, tmp_path):
    run_dir = RunDir(tmp_path)
    save_json(run_dir.launcher, _launcher_of(process.pid).to_json())
    request_stop(run_dir)
    assert process.wait(30) == -signal.SIGTERM


@pytest.mark.parametrize(
    "changes",
    [{"pid": -1, "ticks": 0}, {"pid": 0, "ticks": 0}, {"pid": -1}, {"pid": 1, "ticks": 0}, {"pid": "1"}, {"ticks": 0}],
)
def test_no_launcher_is_named_by_a_pid_that_is_none(changes, tmp_path, monkeypatch):
    run_dir = RunDir(tmp_path)
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("signalled"))
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: pytest.fail("signalled"))
    _save(run_dir, **changes)
    assert read_launcher(run_dir) is None
    request_stop(run_dir)
    assert read_run(run_dir).state is not RunState.RUNNING


def test_the_first_process_is_never_signalled(tmp_path, monkeypatch):
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: pytest.fail("signalled"))
    run_dir, first = RunDir(tmp_path), _launcher_of(1)
    save_json(run_dir.launcher, first.to_json())
    assert first.alive
    with pytest.raises(ProcessLookupError):
        terminate(run_dir, first)
    request_stop(run_dir)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_process_that_is_not_of_the_files_owner_is_not_signalled(process, tmp_path):
    run_dir = RunDir(tmp_path)
    save_json(run_dir.launcher, _launcher_of(process.pid).to_json())
    os.chown(run_dir.launcher, 65534, 65534)
    request_stop(run_dir)
    assert process.poll() is None


def test_a_pid_with_another_start_time_is_not_signalled(process, tmp_path):
    run_dir, launcher = RunDir(tmp_path), _launcher_of(process.pid)
    save_json(run_dir.launcher, replace(launcher, ticks=launcher.ticks + 1).to_json())
    request_stop(run_dir)
    assert process.poll() is None


def test_a_run_of_another_user_is_their_business(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError

    run_dir = RunDir(tmp_path)
    save_json(run_dir.launcher, this_launcher().to_json())
    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    with pytest.raises(TfdistError, match="not your run; ask its owner to stop it") as error:
        request_stop(run_dir)
    assert "sudo" not in str(error.value)
