"""Which files of a folder travel, and what is refused."""

import io
import os
import socket
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch import packing
from tfdist.launch.errors import TfdistError
from tfdist.launch.packing import pack, read_copy
from tfdist.launch.program_copy import ProgramCopy

ODD = 'a\'b "c"\n$d\\ \N{SNOWMAN}.txt'


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def names(copy: ProgramCopy) -> set[str]:
    return set(copy.sizes)


def repository(folder: Path) -> Path:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        git(folder, *words)
    return folder


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def refused(folder: Path, **options: int) -> str:
    with pytest.raises(TfdistError) as error:
        pack(str(folder), **options)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"--copy {folder}: ")
    return str(error.value).removeprefix(f"--copy {folder}: ")


def test_elsewhere_all_but_hidden_files_byte_code_and_results_travels(tmp_path: Path) -> None:
    kept = {"train.py": "1", "package/__init__.py": "", "package/data/a.bin": "x" * 9, ODD: "odd", "runs/notes": ""}
    left = {".env": "", ".venv/bin/python": "", "package/__pycache__/a.pyc": "", "runs/one/launcher.json": "{}",
            "runs/one/attempt-0/log": "", "bench_results/b/bench.json": "{}", "bench_results/b/runs/x/log": ""}  # fmt: skip
    write(tmp_path, kept | left)
    copy = pack(str(tmp_path))
    assert names(copy) == set(kept)
    assert copy.origin.files == len(kept)
    assert copy.origin.size == sum(map(len, kept.values()))
    assert copy.origin.commit == ""
    assert str(copy).startswith(f"copy of {tmp_path}: 5 files, 13 bytes; the largest: package/data/a.bin (9 bytes), ")


def test_of_a_repository_tracked_files_and_those_that_are_not_ignored(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "1", ".github/a.yml": "", "gone.py": "", "data/big": "", ".gitignore": "*.log\n"})
    commit = (repository(tmp_path), git(tmp_path, "rev-parse", "HEAD"))[1]
    assert str(pack(str(tmp_path)).origin).startswith(f"{tmp_path} (git {commit[:12]}): 5 files")
    write(tmp_path, {"new.py": "2", "a.log": "", ".tfdistignore": "data/\n"})
    (tmp_path / "gone.py").unlink()
    copy = pack(str(tmp_path))
    assert names(copy) == {"train.py", ".github/a.yml", ".gitignore", ".tfdistignore", "new.py"}
    assert (copy.origin.commit, copy.origin.changed) == (commit, True)
    assert f"(git {commit[:12]}, changed)" in str(copy)


def test_a_tracked_folder_that_has_become_a_file_travels_as_that(tmp_path: Path) -> None:
    repository(write(tmp_path, {"train.py": "1", "data/a.txt": "1"}))
    (tmp_path / "data" / "a.txt").unlink()
    (tmp_path / "data").rmdir()
    (tmp_path / "data").write_text("now a file")
    assert names(pack(str(tmp_path))) == {"train.py", "data"}


def test_a_part_of_a_repository_with_another_one_in_it(tmp_path: Path) -> None:
    write(tmp_path, {"above.py": "", "job/train.py": ""})
    repository(tmp_path)
    inner = repository(write(tmp_path / "job" / "library", {"code.py": "", ".gitignore": "junk\n", "junk": ""}))
    assert names(pack(str(tmp_path / "job"))) == {"train.py", "library/code.py", "library/.gitignore"}
    assert names(pack(str(inner))) == {"code.py", ".gitignore"}


def test_a_folder_that_its_repository_ignores_travels_as_elsewhere(tmp_path: Path) -> None:
    repository(write(tmp_path, {".gitignore": "scratch/\n"}))
    write(tmp_path / "scratch", {"train.py": "", ".hidden": ""})
    assert names(pack(str(tmp_path / "scratch"))) == {"train.py"}


def test_no_program_of_the_repository_runs(tmp_path: Path) -> None:
    repository(write(tmp_path, {"train.py": ""}))
    write(tmp_path, {"monitor": f"#!/bin/sh\ntouch {tmp_path}/ran\n"}).joinpath("monitor").chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(tmp_path / "monitor"))
    assert "train.py" in names(pack(str(tmp_path)))
    assert not (tmp_path / "ran").exists()


def test_the_archive_keeps_modes_links_and_bytes(tmp_path: Path) -> None:
    write(tmp_path, {"run.sh": "#!/bin/sh\n", "data/real": "x"})
    (tmp_path / "run.sh").chmod(0o750)
    (tmp_path / "data" / "link").symlink_to("../run.sh")
    (tmp_path / os.fsdecode(b"not-\xff-utf8")).write_bytes(b"\0\xff")
    os.link(tmp_path / "run.sh", tmp_path / "hard")
    copy = pack(str(tmp_path))
    with tarfile.open(fileobj=io.BytesIO(copy.archive)) as archive:
        members = {member.name: member for member in archive}
        assert members["run.sh"].mode == members["hard"].mode == 0o750
        assert members["hard"].isreg()
        assert (members["data/link"].issym(), members["data/link"].linkname) == (True, "../run.sh")
        file = archive.extractfile(members[os.fsdecode(b"not-\xff-utf8")])
        assert file is not None
        assert file.read() == b"\0\xff"


def test_the_digest_changes_with_a_name_a_mode_or_a_byte_only(tmp_path: Path) -> None:
    write(tmp_path, {"a": "1", "b": "2"})
    first = pack(str(tmp_path)).origin.digest
    os.utime(tmp_path / "a", (1, 1))
    assert pack(str(tmp_path)).origin.digest == first
    digests = {first}
    (tmp_path / "a").chmod(0o700)
    digests.add(pack(str(tmp_path)).origin.digest)
    (tmp_path / "b").write_text("3")
    digests.add(pack(str(tmp_path)).origin.digest)
    (tmp_path / "b").rename(tmp_path / "c")
    digests.add(pack(str(tmp_path)).origin.digest)
    assert len(digests) == 4


@pytest.mark.parametrize("target", ["../outside", "/etc/passwd", "sub/../../outside", "sub/deep/top/../outside"])
def test_a_link_out_of_the_folder_is_refused_by_name(target: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "job", {"train.py": "", "sub/deep/x": ""})
    (folder / "sub" / "deep" / "top").symlink_to("../..")
    (folder / "away").symlink_to(target)
    assert refused(folder) == (
        f"away is a link out of the folder, to {target}; replace it by what it names, or name it in .tfdistignore"
    )
    write(folder, {".tfdistignore": "away\n"})
    assert names(pack(str(folder))) == {"train.py", "sub/deep/x", "sub/deep/top"}


def test_what_is_no_file_is_refused_by_name_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe\n")
    assert refused(tmp_path) == "pipe is a FIFO, which cannot travel; remove it, or name it in .tfdistignore"
    (tmp_path / "pipe\n").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert refused(tmp_path).startswith("s is a socket, which cannot travel; ")


def test_a_folder_of_10_gb_is_refused_unread_with_its_largest_files(tmp_path: Path) -> None:
    for name, size in (("data.bin", 10 << 30), ("b.bin", 2 << 20), ("c.bin", 1 << 20), ("d.bin", 1)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    assert refused(tmp_path) == (
        "10.7 GB, and compressed more than 67.1 MB (copy_limit); the largest files are data.bin (10.7 GB), b.bin (2.1 "
        "MB), c.bin (1.0 MB); name those that hosts do not need in .tfdistignore, or allow more with --set "
        "copy_limit=SIZE"
    )


def test_what_does_not_compress_below_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(os.urandom(30_000))
    assert refused(tmp_path, limit=20_000).startswith(
        "compressed more than 20.0 kB (copy_limit); the largest files are"
    )
    (tmp_path / "noise").write_bytes(bytes(30_000))
    assert len(pack(str(tmp_path), limit=20_000).archive) < 1000


def test_too_many_files_are_refused_with_the_part_that_has_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MOST_FILES", 30)
    write(tmp_path, {f"images/{number}": "" for number in range(40)} | {"train.py": ""})
    assert refused(tmp_path) == "more than 30 files, 31 of them in images; name what hosts do not need in .tfdistignore"
    write(tmp_path, {".tfdistignore": "/images\n"})
    assert names(pack(str(tmp_path))) == {"train.py"}


def test_a_missing_folder_and_a_broken_ignore_file_are_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "no") == "no such folder; give another; for the current one write --copy -- COMMAND"
    write(tmp_path, {"train.py": ""}).joinpath(".tfdistignore").write_bytes(b"\xff\xfe")
    assert refused(tmp_path).startswith(".tfdistignore cannot be read (")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_an_unreadable_file_is_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, {"secret": ""}).joinpath("secret").chmod(0)
    assert (
        refused(tmp_path) == "secret cannot be read (Permission denied); make it readable, or name it in .tfdistignore"
    )


def test_a_kept_copy_is_read_again(tmp_path: Path) -> None:
    copy = pack(str(write(tmp_path / "job", {"train.py": "1", ODD: ""})))
    kept = tmp_path / "copy.tar.gz"
    kept.write_bytes(copy.archive)
    assert read_copy(kept, copy.origin) == copy
    assert read_copy(kept, copy.origin).sizes == copy.sizes
    for damage in (copy.archive[:-30], b"", b"text"):
        kept.write_bytes(damage)
        with pytest.raises(ValueError, match=r"."):
            read_copy(kept, copy.origin)


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12).filter(
    lambda name: not name.startswith(".") and name != "__pycache__" and len(os.fsencode(name)) < 200
)


@given(st.dictionaries(NAMES, st.binary(max_size=50), max_size=8))
def test_any_names_and_contents_travel(tmp_path_factory: pytest.TempPathFactory, files: Mapping[str, bytes]) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    copy = pack(str(folder))
    with tarfile.open(fileobj=io.BytesIO(copy.archive)) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert found == files
