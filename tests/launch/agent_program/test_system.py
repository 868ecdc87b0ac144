import socket
import time
from pathlib import Path

import pytest

from tests.launch.agent_program.real_agent import real_agent
from tfdist.launch.agent_program import system
from tfdist.launch.agent_program.system import (
    NOT_SHARED,
    check_folder,
    event_time,
    listening_ports,
    reserve,
    temporary_root,
)
from tfdist.launch.agents.messages import CheckFolder, FolderChecked


def test_a_command_that_times_out_has_no_output(monkeypatch):
    monkeypatch.setattr(system, "COMMAND_TIMEOUT_S", 0.1)
    assert system.output_of(["sleep", "60"]) == ""
    assert system.output_of(["echo", "x"]) == "x\n"


def test_a_command_that_cannot_be_run_has_no_output():
    assert system.output_of(["no-such-program"]) == ""


def test_listening_ports_include_servers_and_no_reserved_sockets():
    with socket.create_server(("127.0.0.1", 0)) as server, reserve(0) as reserved:
        ports = listening_ports()
        assert server.getsockname()[1] in ports
        assert reserved.getsockname()[1] not in ports


ODD = "it's; [new] $HOME\n\u00fc"


def test_a_folder_is_created_and_its_token_found_and_removed(tmp_path):
    path = str(tmp_path / ODD / "deep")
    assert check_folder(path, "one", "write") == ""
    assert check_folder(path, "one", "read") == ""
    assert check_folder(path, "other", "read") == NOT_SHARED
    assert check_folder(path, "one", "remove") == ""
    assert list(Path(path).iterdir()) == []
    assert check_folder(path, "one", "read") == NOT_SHARED
    assert check_folder(path, "one", "remove") == ""


def test_a_folder_that_does_not_exist_is_not_created_by_a_reader(tmp_path):
    assert check_folder(str(tmp_path / "none"), "one", "read") == NOT_SHARED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("file", "is a file, not a folder"),
        ("file/below", "cannot be written (Not a directory)"),
        ("x" * 300, "cannot be written (File name too long)"),
        ("nul\0", "cannot be written (embedded null byte)"),
    ],
)
def test_why_a_folder_cannot_be_written(path, reason, tmp_path):
    (tmp_path / "file").touch()
    assert check_folder(f"{tmp_path}/{path}", "one", "write") == reason


def test_the_agent_answers(tmp_path):
    with real_agent() as agent:
        agent.send(CheckFolder(str(tmp_path / "new"), "one", "write", request=7))
        assert agent.wait_for(FolderChecked) == FolderChecked("", request=7)
    assert [path.name for path in tmp_path.glob("new/.*")] == [".tfdist-one"]


def test_the_clock_of_events_is_not_set(monkeypatch):
    before = event_time()
    assert abs(before - time.time()) < 60
    monkeypatch.setattr(time, "time", lambda: before - 1000.0)
    assert before <= event_time() < before + 60


def test_tmpdir_is_used_if_it_is_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary_root() == str(tmp_path)
    for wrong in ("", "/no/such/folder"):
        monkeypatch.setenv("TMPDIR", wrong)
        assert temporary_root() == "/tmp"
