"""The folder of a bench belongs to one process at a time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.users import OTHER, US, as_user, make, needs_root, public_folder
from tfdist.bench.folder import _has_printable_texts, check_new, only_writer, printable, read_lines
from tfdist.launch.errors import TfdistError

public = pytest.fixture(public_folder)
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


@needs_root
def test_a_folder_that_another_user_can_exchange_is_refused(public: Path) -> None:
    for folder, why in (
        (make(public / "open", US, 0o777), "every user may rename what is in"),
        (make(public / "theirs", OTHER, 0o1777), "belongs to user 1235"),
    ):

        def refusals(root: Path = folder / "bench") -> list[str]:
            with pytest.raises(TfdistError) as early:
                check_new(root, "")
            with pytest.raises(TfdistError) as late, only_writer(root):
                pytest.fail("it is used")
            return [str(early.value), str(late.value)]

        for text in as_user(US, refusals):
            assert text.startswith(f"--out {folder}/bench: ")
            assert why in text
        assert list(folder.iterdir()) == []


def test_a_folder_below_a_sticky_one_is_used_whatever_the_umask(public: Path) -> None:
    sticky = public / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    before = os.umask(0)
    try:
        with only_writer(sticky / "a" / "bench"):
            pass
    finally:
        os.umask(before)
    assert [(sticky / name).stat().st_mode & 0o777 for name in ("a", "a/bench")] == [0o775, 0o775]


def test_the_record_of_hundreds_of_tasks_is_read(tmp_path: Path) -> None:
    usage = {f"figure_{number}": 0.123456 for number in range(8)}
    windows = [{"seconds": 0.5, "steps": 3, "examples": 48, "usage": usage}] * 256
    record = {"arm": "a", "ranks": [{"task": f"worker-{rank}", "windows": windows} for rank in range(150)]}
    (tmp_path / "records.jsonl").write_text(f"{json.dumps(record)}\n{json.dumps({'arm': 'b'})}\n")
    assert (tmp_path / "records.jsonl").stat().st_size > 8 << 20
    records, bad = read_lines(tmp_path / "records.jsonl", dict)
    assert [each["arm"] for each in records] == ["a", "b"]
    assert len(records[0]["ranks"]) == 150
    assert bad == []


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=30) | st.sampled_from(["x" * 10_001, "a\x7fb", "\u202ex"]),
        lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=8), each, max_size=4),
    ),
    st.booleans(),
)
def test_a_line_is_left_as_it_is_only_if_all_its_texts_are_printable(value: object, ascii: bool) -> None:
    assert not _has_printable_texts(json.dumps(value, ensure_ascii=ascii)) or printable(value) == value
