"""The copy of a folder on a host: unpacked once, whole or not at all."""

import base64
import os
from pathlib import Path

import pytest

from tfdist.launch.agent_program.copied import Copied
from tfdist.launch.packing import pack


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    folder = tmp_path / "job"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("1")
    (folder / "package" / "run.sh").write_text("2")
    (folder / "package" / "run.sh").chmod(0o700)
    (folder / "link").symlink_to("package/run.sh")
    return pack(str(folder)).archive


def received(folder: Path, archive: bytes, size: int = 50) -> Copied:
    copied = Copied(str(folder / "copy"))
    for at in range(0, len(archive), size):
        copied.add(base64.b64encode(archive[at : at + size]).decode())
    return copied


def test_it_is_unpacked_once_with_modes_and_links(archive: bytes, tmp_path: Path) -> None:
    copied = received(tmp_path, archive)
    assert copied.unpack() == {"copied": str(tmp_path / "copy")}
    folder = tmp_path / "copy"
    assert (folder / "train.py").read_text() == "1"
    assert (folder / "link").read_text() == "2"
    assert (folder / "package" / "run.sh").stat().st_mode & 0o777 == 0o700
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "train.py").write_text("changed by a task")
    assert copied.unpack() == {"copied": str(folder)}
    assert (folder / "train.py").read_text() == "changed by a task"


def test_only_what_was_written_since_is_named_whatever_its_times(archive: bytes, tmp_path: Path) -> None:
    copied = received(tmp_path, archive)
    copied.unpack()
    assert copied.written() == {"names": [], "count": 0}
    folder = tmp_path / "copy"
    while (folder / "probe").exists() or not _is_later(folder / "probe", copied.unpacked_ns):
        (folder / "probe").unlink(missing_ok=True)  # the clock of file systems has steps of some ms
    (folder / "train.py").write_text("2")
    os.utime(folder / "train.py", (1, 1))
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "train.pyc").write_text("")
    for number in range(6):
        (folder / "package" / f"out-{number}").write_text("")
    assert copied.written() == {"names": [f"package/out-{number}" for number in range(4)], "count": 7}


def _is_later(path: Path, unpacked_ns: int) -> bool:
    path.write_text("")
    later = path.stat().st_ctime_ns > unpacked_ns
    path.unlink()
    return later


def test_a_damaged_archive_and_a_full_disk_are_reasons(archive: bytes, tmp_path: Path) -> None:
    assert received(tmp_path, archive[:-40]).unpack()["reason"]
    (tmp_path / "full").mkdir()
    copied = Copied(str(tmp_path / "full" / "copy"))
    (tmp_path / "full" / "copy.tar.gz").symlink_to("/dev/full")
    copied.add(base64.b64encode(archive).decode())
    copied.add("")
    assert copied.unpack() == {"reason": "No space left on device"}
