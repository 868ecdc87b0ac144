"""Which turns are not needed once an arm has learned enough."""

from dataclasses import replace

import pytest

from tests.bench.conftest import record
from tfdist.bench.folder import BenchFile
from tfdist.bench.plan import PlannedRun, interleave
from tfdist.bench.suites.suite import Suite, parse_suite
from tfdist.bench.until import accuracy_of, done_runs, has_learned, unneeded
from tfdist.launch.errors import TfdistError
from tfdist.models.record import Record


def suite(**keys: object) -> Suite:
    arms = [{"name": name, "strategy": "one-device"} for name in ("a", "b")]
    table = {"arms": arms, "defaults": {"evaluate_turns": True}, "rounds": 7, "incarnations": 2, "until_accuracy": 0.9}
    return parse_suite({**table, **keys}, "s")


def bench() -> BenchFile:
    return BenchFile(suite(), "tfdist bench", "", interleave(["a", "b"], 7, 0))


def evaluated(arm: str, round: int, *accuracies: float) -> Record:
    observed = {f"worker-{n}": {"held_out": {"accuracy": each}} for n, each in enumerate(accuracies)}
    return replace(record(arm, round=round), observed=observed)


def test_later_turns_of_the_same_incarnation_are_not_needed():
    records = [evaluated("a", 1, 0.5), evaluated("a", 2, 0.9), evaluated("b", 2, 0.89), evaluated("a", 5, 0.95)]
    assert unneeded(bench(), records) == {PlannedRun(n, "a") for n in (3, 4, 6, 7)}


def test_an_interrupted_training_is_measured_from_its_first_round_on():
    """Rounds 1 to 4 and 5 to 7. One that has learned is complete, as is one without evaluations."""
    learning = [evaluated("a", number, 0.5) for number in (1, 2, 3, 4, 5)]
    assert done_runs(bench(), learning) == {PlannedRun(n, "a") for n in (1, 2, 3, 4)}
    learned = [evaluated("a", number, 0.5) for number in (1, 2, 3, 4)] + [evaluated("a", 5, 0.95)]
    assert done_runs(bench(), learned) == {PlannedRun(n, "a") for n in range(1, 8)}
    plain = [record("b", round=number) for number in (1, 2)]
    assert done_runs(bench(), plain) == {PlannedRun(n, "b") for n in (1, 2)}


def test_every_model_of_an_arm_must_have_learned():
    assert accuracy_of(evaluated("a", 1, 0.95, 0.7).observed) == 0.7
    assert not has_learned(evaluated("a", 1, 0.95, 0.7).observed, suite())
    assert has_learned(evaluated("a", 1, 0.95, 0.9).observed, suite())
    assert not has_learned({}, suite())
    assert not has_learned(evaluated("a", 1, 1.0).observed, suite(until_accuracy=None))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"until_accuracy": 0.0}, "until_accuracy = 0: must be above 0 and at most 1"),
        ({"until_accuracy": 1.5}, "until_accuracy = 1.5: must be above 0"),
        ({"defaults": {}}, "arm 'a' is not evaluated: set evaluate_turns = true"),
        ({"isolated": True, "incarnations": None}, "each turn starts over: omit until_accuracy"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(keys, expected):
    with pytest.raises(TfdistError) as raised:
        suite(**keys)
    assert expected in str(raised.value)
