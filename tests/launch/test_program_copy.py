"""What a copy says of the program that runs in it."""

from pathlib import Path

import pytest

from tfdist.launch.errors import TfdistError
from tfdist.launch.packing import pack


@pytest.mark.parametrize(
    ("file", "answer"),
    [
        ("train.py", None),
        ("./sub/../train.py", None),
        ("other.py", "'other.py' is not in the copy of {folder}: give its path in that folder"),
        (
            ".hidden.py",
            "'.hidden.py' is not in the copy of {folder}: git or .tfdistignore ignores it, so it does not travel",
        ),
        ("{folder}/train.py", "'{folder}/train.py' is not a file of the copy of {folder}: write 'train.py'"),
    ],
)
def test_the_file_of_the_command_must_be_in_the_copy(file: str, answer: str | None, tmp_path: Path) -> None:
    for name in ("train.py", ".hidden.py"):
        (tmp_path / name).touch()
    copy = pack(str(tmp_path))
    file = file.replace("{folder}", str(tmp_path))
    if answer is None:
        copy.check_file(file)
        return
    with pytest.raises(TfdistError) as error:
        copy.check_file(file)
    assert str(error.value) == answer.replace("{folder}", str(tmp_path))
