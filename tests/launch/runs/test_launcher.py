"""The control socket, with real sockets."""

import os
import signal
import socket
import stat
import threading
from queue import Empty

import pytest

from tfdist.launch.agents.inbox import Inbox, Interrupted
from tfdist.launch.runs.launcher import Answer, request, serve
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.stop import running_tasks


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
    assert answer == Answer(os.getpid(), ("worker-0",))


def test_a_status_request_changes_nothing(run_dir):
    running, inbox = ["worker-0", "worker-1"], Inbox()
    with serve(run_dir, inbox, lambda: running):
        assert request(run_dir, "status").running == ("worker-0", "worker-1")
        running.pop()
        assert request(run_dir, "status").running == ("worker-0",)
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
        assert request(run_dir, "status").running == ()


def test_a_client_that_sends_nonsense_or_nothing_does_not_end_the_service(run_dir):
    with serve(run_dir, Inbox(), list):
        folder = os.open(run_dir.path, os.O_RDONLY)
        for data in (b"", b"junk\n", b"[1]\n"):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"/proc/self/fd/{folder}/control.sock")
                client.sendall(data)
        os.close(folder)
        assert request(run_dir, "status").running == ()


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
        assert request(run_dir, "status").running == ("ab",)


def test_a_missing_run_folder_does_not_hurt_the_job(tmp_path):
    with serve(RunDir(tmp_path / "none"), Inbox(), list):
        pass
    assert list(tmp_path.iterdir()) == []
