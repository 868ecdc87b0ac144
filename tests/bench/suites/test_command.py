"""Your own program in the place of the built-in training."""

import json

import pytest

from tfdist.bench.suites.command import check_complete, with_command
from tfdist.bench.suites.suite import load_suite, parse_suite
from tfdist.launch.errors import TfdistError
from tfdist.strategies.options import StrategyName

COMMAND = ("python", "train.py")


def test_a_built_in_suite_keeps_its_strategies_and_drops_its_training() -> None:
    suite = load_suite("cpu")
    changed, notes = with_command(suite, COMMAND, built_in=True)
    assert [arm.name for arm in changed.arms] == [arm.name for arm in suite.arms]
    assert {arm.command for arm in changed.arms} == {COMMAND}
    assert dict(changed.arms[2].choices) == {"strategy": StrategyName.MIRRORED, "devices": 2}
    assert not notes
    assert parse_suite(json.loads(json.dumps(changed.to_json())), "bench.json") == changed


def test_arms_that_differ_only_in_the_training_are_measured_once_and_twins_stay_two() -> None:
    matrix = {"strategy": ["one-device", "mirrored"], "precision": ["float32", "mixed_float16"]}
    twin = {"name": "twin", "strategy": "mirrored", "precision": "float32"}
    suite = parse_suite({"matrix": matrix, "arms": [twin]}, "s")
    changed, notes = with_command(suite, COMMAND, built_in=True)
    assert [arm.name for arm in changed.arms] == ["one-device/float32", "mirrored/float32", "twin"]
    assert notes == (
        "left out: one-device/mixed_float16 does the same as one-device/float32 with your own program",
        "left out: mirrored/mixed_float16 does the same as mirrored/float32 with your own program",
    )


def test_without_a_command_nothing_changes() -> None:
    suite = load_suite("cpu")
    assert with_command(suite, (), built_in=False) == (suite, ())


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"defaults": {"batch_size": 8}}, "has batch_size, which is for the built-in training"),
        ({"command": ["true"]}, "has a command and another follows --"),
    ],
)
def test_a_suite_of_the_user_must_not_contradict_the_command(table: dict[str, object], reason: str) -> None:
    suite = parse_suite({**table, "arms": [{"name": "a", "strategy": "one-device"}]}, "s")
    with pytest.raises(TfdistError, match=reason):
        with_command(suite, COMMAND, built_in=False)


def test_a_suite_saved_without_its_secrets_cannot_run() -> None:
    suite = parse_suite({"arms": [{"name": "a", "strategy": "one-device", "command": ["p", "--token", "abc"]}]}, "s")
    check_complete(suite, "--resume x")
    with pytest.raises(TfdistError, match="--resume x: the command of a has secrets, which are not saved"):
        check_complete(parse_suite(suite.to_json(), "bench.json"), "--resume x")
