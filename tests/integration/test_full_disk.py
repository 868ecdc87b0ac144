"""A run folder on a full disk: the training continues."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.disks import small_disk

from .test_command import TFDIST, TINY

SIZE = 256 << 10


@pytest.fixture
def disk(tmp_path):
    """A small file system of its own."""
    with small_disk(tmp_path, SIZE >> 10) as folder:
        yield folder


def tfdist(*arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*TFDIST, *arguments], capture_output=True, text=True, cwd=cwd, timeout=120)


def launch(folder: Path, *arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return tfdist("launch", "--runs-dir", str(folder), *arguments, cwd=cwd)


def test_a_training_ends_with_0_although_the_run_folder_is_full(disk):
    (disk / "filler").write_bytes(bytes(SIZE - 4096))
    (disk / "rest").write_bytes(bytes(4096))
    done = launch(disk, *TINY)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("No space left on device") == 1
    assert "json (No space left on device)" in done.stderr
    assert "images/s (the whole job)" in done.stdout


def test_a_run_that_could_write_nothing_can_be_stopped(disk):
    (disk / "filler").write_bytes(bytes(SIZE - 4096))
    (disk / "rest").write_bytes(bytes(4096))
    assert launch(disk, "--detach", "--", "sleep", "1000").returncode == 0
    listed, stopped = (tfdist(*words, "--runs-dir", str(disk)) for words in (("runs",), ("stop", "last")))
    assert "running" in listed.stdout
    assert stopped.returncode == 0
    assert "ended, but its outcome could not be written" in stopped.stdout


def test_the_outcome_is_written_although_the_logs_fill_the_disk(disk):
    code = f"import sys; sys.stdout.write(('x' * 99 + chr(10)) * {SIZE // 50})"
    done = launch(disk, "--", sys.executable, "-c", code)
    assert done.returncode == 0
    assert done.stderr.count("stdout.log (No space left on device)") == 1
    assert done.stdout.count("x" * 99) == SIZE // 50
    (outcome,) = disk.glob("*/outcome.json")
    assert json.loads(outcome.read_text())["status"] == "ok"


@pytest.mark.parametrize("code", [0, 3])
def test_a_run_folder_that_is_replaced_by_a_file(tmp_path, code):
    replace = "import glob, os, shutil, sys; (run,) = glob.glob('*'); shutil.rmtree(run); open(run, 'w')"
    done = launch(Path(), "--", sys.executable, "-c", f"{replace}; print('hello'); sys.exit({code})", cwd=tmp_path)
    assert done.returncode == code
    assert done.stderr.count("cannot write") == 1
    assert "hello" in done.stdout
