import json

import pytest

from tfdist.launch.json_files import append_line, dumps, read_json, save_json


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
