"""The control socket, with real sockets."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from queue import Empty

import pytest

from tfdist.launch.agents.inbox import Inbox, Interrupted
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import save_json
from tfdist.launch.runs.launcher import (
    ANSWER_S,
    Launcher,
    read_launcher,
    request,
    request_stop,
    running_tasks,
    serve,
    this_launcher,
)
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import RunState, read_run


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
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: pytest.fail("signalled"), raising=False)
    _save(run_dir, **changes)
    assert read_launcher(run_dir) is None
    request_stop(run_dir)
    assert read_run(run_dir).state is not RunState.RUNNING


@pytest.mark.skipif(os.geteuid() != 0, reason="process 1 is root's")
def test_a_launcher_that_is_the_first_process_of_its_container_is_stopped(tmp_path, monkeypatch):
    signals = []
    for module, name in ((signal, "pidfd_send_signal"), (os, "kill")):  # os.kill where Python lacks the first
        monkeypatch.setattr(module, name, lambda _, number: signals.append(number), raising=False)
    run_dir = RunDir(tmp_path)
    save_json(run_dir.launcher, _launcher_of(1).to_json())
    request_stop(run_dir)
    assert signals == [signal.SIGTERM]


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
    for module, name in ((signal, "pidfd_send_signal"), (os, "kill")):
        monkeypatch.setattr(module, name, refuse, raising=False)
    with pytest.raises(TfdistError, match="not your run; ask its owner to stop it") as error:
        request_stop(run_dir)
    assert "sudo" not in str(error.value)


@pytest.fixture
def run_dir(tmp_path):
    """A folder whose path is too long for the address of a socket."""
    path = tmp_path / ("long" * 30) / ("er" * 40)
    path.mkdir(parents=True)
    return RunDir(path)


def test_a_request_to_stop_arrives_as_an_interruption_that_names_the_command(run_dir):
    inbox = Inbox()
    with serve(run_dir, inbox, lambda: ["worker-0"]):
        answer = request(run_dir, "stop")
        assert inbox.get(5.0).message == Interrupted(signal.SIGTERM, "tfdist stop")
    assert answer == ("worker-0",)


def test_a_status_request_changes_nothing(run_dir):
    running, inbox = ["worker-0", "worker-1"], Inbox()
    with serve(run_dir, inbox, lambda: running):
        assert request(run_dir, "status") == ("worker-0", "worker-1")
        running.pop()
        assert request(run_dir, "status") == ("worker-0",)
        with pytest.raises(ConnectionRefusedError, match="no answer"):
            request(run_dir, "restart")
    with pytest.raises(Empty):
        inbox.get(0.0)


def test_only_the_owner_can_connect_and_the_socket_is_removed_at_the_end(run_dir):
    with serve(run_dir, Inbox(), list):
        mode = run_dir.control.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
    assert not run_dir.control.exists()
    assert not [thread for thread in threading.enumerate() if thread.name == "control"]
    with pytest.raises(FileNotFoundError):
        request(run_dir, "status")


def test_the_socket_of_a_killed_launcher_refuses_and_is_replaced(run_dir):
    folder = os.open(run_dir.path, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(f"/proc/self/fd/{folder}/control.sock")
        killed.listen()
    os.close(folder)
    with pytest.raises(ConnectionRefusedError):
        request(run_dir, "stop")
    with serve(run_dir, Inbox(), list):
        assert request(run_dir, "status") == ()


def test_a_client_that_sends_nonsense_or_nothing_does_not_end_the_service(run_dir):
    with serve(run_dir, Inbox(), list):
        folder = os.open(run_dir.path, os.O_RDONLY)
        for data in (b"", b"junk\n", b"[1]\n"):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"/proc/self/fd/{folder}/control.sock")
                client.sendall(data)
        os.close(folder)
        assert request(run_dir, "status") == ()


def test_clients_that_say_nothing_do_not_delay_a_request_to_stop(run_dir):
    inbox = Inbox()
    with serve(run_dir, inbox, list), ExitStack() as stack:
        folder = os.open(run_dir.path, os.O_RDONLY)
        for _ in range(20):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(f"/proc/self/fd/{folder}/control.sock")
        os.close(folder)
        started = time.monotonic()
        request(run_dir, "stop")
        assert time.monotonic() - started < ANSWER_S / 2
        assert inbox.get(1.0).message == Interrupted(signal.SIGTERM, "tfdist stop")


@pytest.mark.parametrize("answer", [b'{"pid": 1, "running": 5}\n', b"[]\n", b"[" * 50_000 + b"\n", b""])
def test_a_socket_of_somebody_else_does_not_end_the_client(answer, run_dir):
    folder = os.open(run_dir.path, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{folder}/control.sock")
        listener.listen()

        def serve_one():
            client, _ = listener.accept()
            with client:
                client.sendall(answer)
                client.recv(100)

        thread = threading.Thread(target=serve_one)
        thread.start()
        assert running_tasks(run_dir) == ()
        thread.join()
    os.close(folder)


def test_escapes_in_the_names_of_tasks_are_not_shown(run_dir):
    with serve(run_dir, Inbox(), lambda: ["a\x1b]0;title\x07b"]):
        assert request(run_dir, "status") == ("ab",)


def test_a_missing_run_folder_does_not_hurt_the_job(tmp_path):
    with serve(RunDir(tmp_path / "none"), Inbox(), list):
        pass
    assert list(tmp_path.iterdir()) == []
