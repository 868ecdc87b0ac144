from pathlib import Path

import pytest

from tests.launch.agent_program.real_agent import real_agent
from tfdist.launch.agent_program.shared_folder import NOT_SHARED, check_folder
from tfdist.launch.agents.messages import CheckFolder, FolderChecked

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
