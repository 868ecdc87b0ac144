"""The folder of a bench belongs to one process at a time."""

import subprocess
import sys
from pathlib import Path

import pytest

from tfdist.bench.folder import only_writer
from tfdist.launch.errors import TfdistError

HOLD = """import sys
from pathlib import Path
from tfdist.bench.folder import only_writer
with only_writer(Path(sys.argv[1])):
    print(flush=True)
    sys.stdin.read()
"""


def test_only_one_process_measures_into_a_folder(tmp_path: Path) -> None:
    root = tmp_path / "it's; new" / "bench"
    command = [sys.executable, "-c", HOLD, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(TfdistError, match="another tfdist measures into it"), only_writer(root):
            pytest.fail("two at a time")
        other.communicate()
    for _ in range(2):
        with only_writer(root):
            assert root.is_dir()


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(TfdistError, match=r"file/bench .*: choose another --out"),
        only_writer(tmp_path / "file" / "bench"),
    ):
        pytest.fail("created")
