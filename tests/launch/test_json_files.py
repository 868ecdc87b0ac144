import json
import os
import tracemalloc
from functools import partial

import pytest

from tfdist.launch.json_files import append_line, dumps, overwrite, read_bytes, read_json, replace_file, save_json


def test_nan_and_infinity_become_null():
    assert dumps({"loss": [float("nan"), 1.5, float("-inf")]}) == '{"loss": [null, 1.5, null]}'


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "new" / "a.json"
    save_json(path, {"a": 1})
    with pytest.raises(TypeError):
        save_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("data", [b"", b"{", b"\xff"])
def test_a_file_that_is_not_json_has_no_value(data, tmp_path):
    path = tmp_path / "a.json"
    assert read_json(path) is None
    path.write_bytes(data)
    assert read_json(path) is None
    save_json(path, [1])
    assert read_json(path) == [1]


@pytest.mark.parametrize(("before", "after"), [("", "b\n"), ("a\n", "a\nb\n"), ("a", "a\nb\n")])
def test_a_line_follows_one_that_was_cut_off(before, after, tmp_path):
    path = tmp_path / "lines"
    path.write_text(before)
    append_line(path, "b")
    assert path.read_text() == after


@pytest.mark.parametrize("write", [partial(append_line, text="x"), partial(overwrite, data=b"x")])
def test_a_link_or_a_pipe_in_place_of_a_file_is_refused(write, tmp_path):
    victim, path, pipe = tmp_path / "victim", tmp_path / "link", tmp_path / "pipe"
    victim.write_text("mine")
    path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        write(path)
    assert victim.read_text() == "mine"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match=r"not a regular file|No such device"):  # and it does not wait
        write(pipe)


def test_a_link_is_replaced_and_not_followed(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "link"
    victim.write_text("mine")
    path.symlink_to(victim)
    replace_file(path, b"x", sync=False)
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("mine", "x", False)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_that_is_overwritten_stays_the_same_file_and_must_exist(tmp_path):
    path = tmp_path / "log"
    with pytest.raises(FileNotFoundError):
        overwrite(path, b"x")
    path.write_text("longer")
    before = path.stat().st_ino
    overwrite(path, b"x")
    assert (path.read_bytes(), path.stat().st_ino) == (b"x", before)


def test_a_small_file_takes_little_memory_whatever_the_limit(tmp_path):
    (tmp_path / "small").write_bytes(b"x")
    tracemalloc.start()
    try:
        assert read_bytes(tmp_path / "small") == b"x"
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()
