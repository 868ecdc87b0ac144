import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.suites.arms import resolve_arms
from tfdist.bench.suites.suite import built_in_suites, load_suite, narrow, parse_suite
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import Machine, local_machines
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import CrossDevice, StrategyName

GOOD = """
name = "mine"
rounds = 2
timeout = 60
[defaults]
batch_size = 8
[[arms]]
name = "one"
strategy = "one-device"
[[arms]]
name = "two"
strategy = "mirrored"
devices = 2
cross_device = "hierarchical-copy"
batch_size = 16
"""


def sentence_of(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(TfdistError) as raised:
        load_suite(str(path))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_file_becomes_arms_with_the_defaults_in_them(tmp_path: Path) -> None:
    path = tmp_path / "a folder; it's odd.toml"
    path.write_text(GOOD)
    suite = load_suite(str(path))
    assert (suite.name, suite.rounds, suite.timeout_s, suite.scaling, suite.seed) == ("mine", 2, 60, "weak", 0)
    one, two = suite.arms
    assert dict(one.choices) == {"batch_size": 8, "strategy": StrategyName.ONE_DEVICE}
    assert two.choices["batch_size"] == 16
    assert two.choices["cross_device"] is CrossDevice.HIERARCHICAL_COPY


@pytest.mark.parametrize("name", built_in_suites())
def test_a_suite_survives_json(name: str) -> None:
    suite = load_suite(name)
    assert parse_suite(json.loads(json.dumps(suite.to_json())), "bench.json") == suite


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (('rounds = 2', 'ronds = 2'), "did you mean rounds?"),
        (('batch_size = 8', 'batchsize = 8'), "did you mean batch_size?"),
        (('devices = 2', 'zzz = 2'), "choose from"),
        (('name = "two"', 'name = "one"'), "two arms called 'one'"),
        (('name = "two"', ''), "arm number 2, has no name"),
        (('strategy = "one-device"', ''), "no strategy"),
        (('"one-device"', '"one-devise"'), "one-device, mirrored"),
        (('"one-device"', '"auto"'), "name a strategy"),
        (('batch_size = 8', 'batch_size = "8"'), "must be an integer"),
        (('batch_size = 8', 'batch_size = true'), "must be an integer"),
        (('batch_size = 8', 'alpha = "wide"'), "a number"),
        (('batch_size = 8', 'evaluate = 1'), "true or false"),
        (('rounds = 2', 'rounds = 0'), "must be at least 1"),
        (('timeout = 60', 'timeout = -1'), "omit it for no limit"),
        (('timeout = 60', 'preset = "huge"'), "smoke, cpu, reference"),
        (('timeout = 60', 'scaling = "wide"'), "weak"),
        (('timeout = 60', 'scaling = "strong"'), "use that instead"),
        (('batch_size = 8', 'global_batch_size = 8'), "use that instead"),
        (('rounds = 2', 'rounds = 2 ='), "not TOML"),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    assert change[0] in GOOD
    assert expected in sentence_of(tmp_path, GOOD.replace(*change, 1))


def test_a_suite_without_arms_is_refused(tmp_path: Path) -> None:
    assert "no arms" in sentence_of(tmp_path, 'name = "empty"\n')
    assert "make each a table" in sentence_of(tmp_path, 'arms = ["one"]\n')


def test_strong_scaling_fixes_the_global_batch(tmp_path: Path) -> None:
    text = GOOD.replace("rounds = 2", 'scaling = "strong"').replace("batch_size = 16", "")
    assert "no global_batch_size" in sentence_of(tmp_path, text.replace("batch_size = 8", ""))
    path = tmp_path / "strong.toml"
    path.write_text(text.replace("batch_size = 8", "global_batch_size = 8"))
    assert [arm.choices["global_batch_size"] for arm in load_suite(str(path)).arms] == [8, 8]


def test_an_unknown_suite_lists_the_built_in_ones() -> None:
    with pytest.raises(TfdistError, match="cpu, gpu, hosts, smoke"):
        load_suite("smokey")


def test_a_folder_is_not_a_suite(tmp_path: Path) -> None:
    with pytest.raises(TfdistError, match="directory"):
        load_suite(str(tmp_path))


def test_arms_are_chosen_by_pattern() -> None:
    suite = narrow(load_suite("cpu"), ["mirrored/*", "one-device"], rounds=5, seed=9)
    names = [arm.name for arm in suite.arms]
    assert names == ["one-device", "mirrored/auto", "mirrored/hierarchical-copy", "mirrored/reduction-to-one"]
    assert (suite.rounds, suite.seed) == (5, 9)


def test_a_pattern_that_matches_nothing_lists_the_arms() -> None:
    with pytest.raises(TfdistError, match=r"'nope' matches no arm.*one-device, independent"):
        narrow(load_suite("cpu"), ["nope"], None, None)


@pytest.mark.parametrize("name", ["smoke", "cpu"])
def test_the_cpu_suites_run_every_strategy_on_two_cores(name: str) -> None:
    suite = load_suite(name)
    arms = resolve_arms(suite.arms, local_machines(Machine((0, 1), ())), suite.preset)
    assert not arms.refused
    assert not arms.warnings
    assert {spec.strategy for spec in arms.specs.values()} == set(CATALOG) - {StrategyName.TPU}
    assert all(spec.replicas in (1, 2) and not spec.evaluate for spec in arms.specs.values())


def test_the_gpu_suite_takes_every_gpu() -> None:
    suite = load_suite("gpu")
    arms = resolve_arms(suite.arms, local_machines(Machine((0, 1), ("A", "B", "C", "D"))), suite.preset)
    assert not arms.refused
    assert {spec.replicas for name, spec in arms.specs.items() if "one-device" not in name} == {4}


def test_the_gpu_suite_is_refused_arm_by_arm_without_gpus() -> None:
    suite = load_suite("gpu")
    arms = resolve_arms(suite.arms, local_machines(Machine((0, 1), ())), suite.preset)
    assert not arms.specs
    assert len(arms.refused) == len(suite.arms)
    assert all("GPU" in reason for reason in arms.refused.values())


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["name", "rounds", "arms", "defaults", "matrix", "exclude", "strategy", "timeout", "x"]), inner)))  # fmt: skip
def test_any_table_is_a_suite_or_a_sentence(value: object) -> None:
    table = value if isinstance(value, dict) else {"arms": value}
    with contextlib.suppress(TfdistError):
        assert parse_suite(table, "x").arms
    with pytest.raises(TfdistError):
        parse_suite({**table, "surely_unknown": 1}, "x")
