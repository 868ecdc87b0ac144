"""The files of findings: what is appended is read again, whatever else is in them."""

import os
from pathlib import Path

import pytest

from tfdist.bench.history import append_rows, history_file, read_rows

COLUMNS = ("machine", "value")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "it's; state"))
    return tmp_path / "it's; state" / "tfdist" / "found.csv"


def append(*values: object) -> None:
    append_rows("found.csv", COLUMNS, [('AMD "EPYC", 2 cores', value) for value in values])


def values() -> list[str]:
    return [row["value"] for row in read_rows("found.csv", COLUMNS)]


def test_what_is_appended_is_read(state: Path) -> None:
    assert values() == []
    append(1, 2)
    append(3)
    assert values() == ["1", "2", "3"]
    assert len(state.read_text().splitlines()) == 4
    assert {row["machine"] for row in read_rows("found.csv", COLUMNS)} == {'AMD "EPYC", 2 cores'}


def test_a_line_that_is_cut_or_too_long_is_skipped_and_the_next_one_is_whole(state: Path) -> None:
    append(1)
    with state.open("a") as file:
        file.write("a,b,c\nthis")
    append(2)
    assert values() == ["1", "2"]


def test_a_file_without_its_first_line_counts_as_empty(state: Path) -> None:
    append(1, 2)
    state.write_text("".join(state.read_text().splitlines(keepends=True)[1:]))
    assert values() == []


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\0", b""])
def test_a_file_of_something_else_counts_as_empty(state: Path, content: bytes) -> None:
    state.parent.mkdir(parents=True)
    state.write_bytes(content)
    assert values() == []


def test_a_user_without_a_home_has_the_file_of_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "~")  # as expanduser returns it for a user that is not known
    assert history_file("found.csv") == Path("/.local/state/tfdist/found.csv")
    monkeypatch.setenv("HOME", "/home/me")
    assert history_file("found.csv") == Path("/home/me/.local/state/tfdist/found.csv")


def test_a_text_that_is_not_utf_8_is_added() -> None:
    append(*map(os.fsdecode, (b"/results/\xff", b"/results/\xfe")))
    assert values() == ["/results/\\udcff", "/results/\\udcfe"]


def test_a_link_in_place_of_the_file_is_not_followed(state: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    state.parent.mkdir(parents=True)
    state.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        append(1)
    assert victim.read_text() == "mine"
