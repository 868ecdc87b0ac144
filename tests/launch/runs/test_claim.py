"""Claims on folders, by real processes."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tfdist.launch.runs.claim import ClaimedError, claim

HOLDER = """
import sys
from tfdist.launch.runs.claim import claim
with claim(sys.argv[1]):
    print("claimed", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir(0o700)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))


@pytest.fixture
def holder():
    """A process that has claimed /ck, until it reads a line."""
    command = [sys.executable, "-c", HOLDER, "/ck"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "claimed\n"
        yield process
        process.kill()


def files():
    return [*Path(os.environ["TMPDIR"]).iterdir()]


def test_one_process_has_a_folder_until_it_ends(holder):
    with pytest.raises(ClaimedError) as error, claim("/ck"):
        pass
    assert error.value.pid == holder.pid
    with claim("/other"):
        pass
    holder.communicate("\n", timeout=30)
    assert files() == []
    with claim("/ck"):
        assert [stat.S_IMODE(file.stat().st_mode) for file in files()] == [0o600]
    assert files() == []


def test_a_process_that_was_killed_has_no_claim(holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait(timeout=30)
    with claim("/ck"):
        assert [file.read_text() for file in files()] == [str(os.getpid())]
    assert files() == []


def test_without_a_file_that_can_be_locked_nothing_is_claimed(holder):
    (file,) = files()
    file.unlink()
    file.symlink_to("/dev/null")
    with claim("/ck"):
        pass
    assert file.is_symlink()
