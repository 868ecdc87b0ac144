"""[matrix]: the arms it makes, their names and order, and every error."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tfdist.bench.against import with_base
from tfdist.bench.suites.arm import MOST_ARMS
from tfdist.bench.suites.suite import Suite, load_suite, parse_suite
from tfdist.launch.errors import TfdistError
from tfdist.strategies.options import Precision, StrategyName


def suite_in(tmp_path: Path, text: str) -> Suite:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    return load_suite(str(path))


def error_of(tmp_path: Path, matrix: str) -> str:
    with pytest.raises(TfdistError) as raised:
        suite_in(tmp_path, "[matrix]\n" + matrix)
    text = str(raised.value)
    assert str(tmp_path / "sweep.toml") in text
    assert "\n" not in text
    return text


def test_the_gpu_suite_has_every_count_precision_and_exchange() -> None:
    arms = load_suite("gpu").arms
    names = [arm.name for arm in arms]
    assert len(arms) == 60
    for strategy in ("independent", "mirrored/auto", "multiworker/nccl"):
        for count in (2, 4, 8):
            for precision in ("float32", "mixed_bfloat16", "mixed_float16", "xla"):
                assert f"{strategy}/{count}/{precision}" in names
    for exchange in ("mirrored/nccl", "mirrored/hierarchical-copy", "mirrored/reduction-to-one", "multiworker/ring"):
        assert {f"{exchange}/{count}" for count in (2, 4, 8)} <= {*names}
    choices = {arm.name: dict(arm.choices) for arm in arms}
    assert choices["one-device/xla"] == {**choices["one-device/float32"], "xla": True}
    assert choices["one-device/again"] == {
        key: v for key, v in choices["one-device/float32"].items() if key != "precision"
    }


def test_a_sweep_over_batch_sizes_is_three_lines(tmp_path: Path) -> None:
    suite = suite_in(tmp_path, '[matrix]\nstrategy = ["one-device", "mirrored"]\nbatch_size = [16, 32, 64]\n')
    assert suite.name == "sweep"
    assert [arm.name for arm in suite.arms] == [
        "one-device/batch_size=16", "mirrored/batch_size=16", "one-device/batch_size=32", "mirrored/batch_size=32",
        "one-device/batch_size=64", "mirrored/batch_size=64"]  # fmt: skip
    assert dict(suite.arms[1].choices) == {"strategy": StrategyName.MIRRORED, "batch_size": 16}


def test_names_have_the_key_of_a_value_that_is_not_a_text() -> None:
    strategy = [{"strategy": "multiworker", "workers": 2}, {"name": "mine", "strategy": "one-device"}]
    matrix = {"strategy": strategy, "xla": [True, False], "keras": ["2"], "hosts": [1], "alpha": [0.35]}
    arms = parse_suite({"matrix": matrix}, "s").arms
    assert [arm.name for arm in arms] == [
        "multiworker/workers=2/xla=true/keras=2/hosts=1/alpha=0.35", "mine/xla=true/keras=2/hosts=1/alpha=0.35",
        "multiworker/workers=2/xla=false/keras=2/hosts=1/alpha=0.35", "mine/xla=false/keras=2/hosts=1/alpha=0.35",
    ]  # fmt: skip


def test_matrix_arms_come_before_explicit_ones_and_take_the_defaults() -> None:
    table = {
        "defaults": {"batch_size": 8, "precision": "float32"},
        "matrix": {"strategy": ["one-device", "independent"], "precision": ["mixed_float16", "float32"],
                   "exclude": [{"batch_size": 8, "strategy": "one-device", "precision": "float32"}]},
        "arms": [{"name": "last", "strategy": "mirrored"}],
    }  # fmt: skip
    suite = parse_suite(table, "s")
    names = ["one-device/mixed_float16", "independent/mixed_float16", "independent/float32", "last"]
    assert [arm.name for arm in suite.arms] == names
    assert {arm.choices["batch_size"] for arm in suite.arms} == {8}
    assert suite.arms[0].choices["precision"] is Precision.MIXED_FLOAT16
    assert parse_suite(json.loads(json.dumps(suite.to_json())), "bench.json") == suite


def test_an_arm_of_a_matrix_knows_its_value_of_each_list() -> None:
    strategy = ["one-device", {"name": "mine", "strategy": "mirrored", "devices": 2}]
    suite = parse_suite(
        {
            "matrix": {"strategy": strategy, "xla": [True, False], "batch_size": [{"batch_size": 8, "alpha": 0.5}]},
            "arms": [{"name": "last", "strategy": "mirrored"}],
        },
        "s",
    )
    assert [tuple(arm.levels.values()) for arm in suite.arms] == [
        ("one-device", "xla=true", "batch_size=8/alpha=0.5"), ("mine", "xla=true", "batch_size=8/alpha=0.5"),
        ("one-device", "xla=false", "batch_size=8/alpha=0.5"), ("mine", "xla=false", "batch_size=8/alpha=0.5"), (),
    ]  # fmt: skip
    assert all(tuple(arm.levels) == ("strategy", "xla", "batch_size") for arm in suite.arms[:-1])
    again = parse_suite(json.loads(json.dumps(suite.to_json())), "bench.json")
    assert [arm.levels for arm in again.arms] == [arm.levels for arm in suite.arms]
    assert "levels" not in suite.to_json()["arms"][-1], "as in a bench.json of earlier versions"


def test_an_arm_that_a_bench_adds_has_no_place_in_the_matrix() -> None:
    suite = parse_suite({"matrix": {"strategy": ["mirrored"], "devices": [1, 2]}, "command": ["true"]}, "s")
    paired = with_base(replace(suite, against="HEAD"))
    assert [bool(arm.levels) for arm in paired.arms] == [True, False, True, False]


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (3, "has levels = 3: make it a table of texts"),
        ({"strategy": 3}, "has levels = {'strategy': 3}: make it a table of texts"),
        ({"stratgy": "a"}, "has the unknown key 'stratgy': did you mean strategy?"),
        ({"strategy": "a\n"}, "has a line break or another control character"),
    ],
)
def test_a_place_that_no_matrix_has_is_refused(levels: object, expected: str) -> None:
    with pytest.raises(TfdistError, match=re.escape(expected)):
        parse_suite({"arms": [{"name": "a", "strategy": "mirrored", "levels": levels}]}, "bench.json")


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ('stratgy = ["mirrored"]', "[matrix], has the unknown key 'stratgy': did you mean strategy?"),
        ('name = ["a"]', "[matrix], has the unknown key 'name'"),
        ("batch_size = []", "batch_size = []: give a list of values, as batch_size = [...]"),
        ("batch_size = 16", "batch_size = 16: give a list of values"),
        ('strategy = ["mirrored"]\nsteps = [10, 20]', "has steps, but a bench trains in turns"),
        ("", "makes 0 arms"),
        (f"seed = {list(range(MOST_ARMS + 1))}", f"makes {MOST_ARMS + 1} arms: give lists that make 1 to {MOST_ARMS}"),
        ("batch_size = [16]", "no strategy"),
        ('strategy = [{ strategy = "mirrored", name = "a\u00a0b" }]', "a character that cannot be shown"),
        ('strategy = ["mirored"]', "did you mean mirrored?"),
        ('strategy = ["mirrored", "mirrored"]', "two arms called 'mirrored'"),
        ('strategy = [{ name = "x", devices = 2 }]', "a table in strategy that sets no strategy"),
        ('strategy = [{ strategy = "mirrored", device = 2 }]', "did you mean devices?"),
        ('strategy = [{ strategy = "mirrored", levels = { strategy = "a" } }]', "has the unknown key 'levels'"),
        ('strategy = [{ strategy = "mirrored", xla = true }]\nxla = [true]', "sets xla in two lists"),
        ('strategy = ["mirrored"]\nexclude = [{ stratgy = "mirrored" }]', "did you mean strategy?"),
        ('strategy = ["mirrored"]\nexclude = [{ strategy = "mirored" }]', "did you mean mirrored?"),
        (
            'strategy = ["mirrored"]\nexclude = [{ strategy = "one-device" }]',
            "matches no arm: {'strategy': 'one-device'}",
        ),
        ('strategy = ["mirrored"]\nexclude = [{ strategy = "mirrored" }]', "excludes all of its arms"),
        ('strategy = ["mirrored"]\nexclude = { strategy = "mirrored" }', "make it a list of tables"),
        ('strategy = ["mirrored"]\nexclude = [{}]', "make it a list of tables"),
    ],
)
def test_an_error_is_one_sentence(tmp_path: Path, matrix: str, expected: str) -> None:
    assert expected in error_of(tmp_path, matrix)


@pytest.mark.parametrize("matrix", [None, 3, [], "x"])
def test_a_matrix_that_is_not_a_table_is_refused(matrix: object) -> None:
    with pytest.raises(TfdistError, match="make it a table of lists"):
        parse_suite({"matrix": matrix}, "s")
