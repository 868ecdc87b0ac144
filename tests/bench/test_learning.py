"""Learning curves of records with known windows and evaluations."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.bench.conftest import record
from tfdist.bench.learning import Updates, curves_of, reached, updates_of
from tfdist.models.record import Record


def counted(*rows: list[int]) -> Record:
    return replace(record(), observed={"chief-0": {"updates": list(rows)}})


def test_all_turns_are_added_up_by_worker():
    updates = updates_of([counted([1, 2], [3]), counted([], [1, 0, 4]), record()])
    assert updates.counts == ((1, 2), (4, 0, 4))
    assert updates.shares == (pytest.approx(3 / 11), pytest.approx(8 / 11))
    assert updates_of([record()]) is None


def test_staleness_of_known_counts():
    staleness = Updates(((90, 5, 0, 1), (0, 0, 4))).staleness
    assert (staleness.mean, staleness.p95, staleness.largest) == (0.16, 1, 3)


def test_one_worker_has_no_staleness():
    assert Updates(((7,),)).staleness.mean == 0
    assert Updates(((7,),)).staleness.largest == 0
    assert Updates(((), ())).staleness is None


def turn(
    number: int, accuracies: Sequence[float], examples: int, incarnation: int = 1, seconds: float = 1.0, **spec: object
) -> Record:
    """Each rank trains 10 examples in its only window of `seconds`, and is evaluated after `examples`."""
    times = [[seconds]] * len(accuracies)
    one = record("arm", times, **{"round": number, "order": number, "seed": incarnation - 1, **spec})
    results = {
        f"worker-{rank}": {"held_out": {"examples": examples, "loss": 1 - each, "accuracy": each}}
        for rank, each in enumerate(accuracies)
    }
    return replace(one, incarnation=incarnation, observed=results)


def test_seconds_are_examples_over_the_speed_of_each_turn():
    """Untimed examples count at the speed of their turn: 20 at 10/s, then 30 at 5/s."""
    (curve,) = curves_of([turn(1, [0.5], 20), turn(2, [0.9], 50, seconds=2.0)])
    assert [(point.examples, point.seconds) for point in curve.points] == [(20, 2.0), (50, 8.0)]


def test_an_accuracy_is_reached_between_two_evaluations():
    (curve,) = curves_of([turn(1, [0.5], 20), turn(2, [0.9], 40), turn(3, [0.8], 60)])
    assert curve.reach(0.6).examples == pytest.approx(25)
    assert curve.reach(0.6).seconds == pytest.approx(2.5)
    assert curve.reach(0.4).examples == 20
    assert curve.reach(0.95) is None


def test_a_synchronous_job_has_one_curve_and_each_start_one_of_its_own():
    spec = {"strategy": "multiworker", "workers": 2}
    curves = curves_of([turn(1, [0.5, 0.5], 40, **spec), turn(2, [0.6, 0.6], 40, incarnation=2, **spec)])
    assert [(curve.task, curve.seed, curve.points[0].accuracy) for curve in curves] == [
        ("worker-0", 0, 0.5), ("worker-0", 1, 0.6)]  # fmt: skip
    assert curves[0].points[0].seconds == pytest.approx(2.0), "40 examples at 20/s, of both workers"


def test_trainings_without_exchange_have_a_curve_each_and_count_once():
    curves = curves_of([turn(1, [0.5, 1.0], 20, strategy="independent", workers=2)])
    assert [curve.task for curve in curves] == ["worker-0", "worker-1"]
    assert curves[0].points[0].seconds == pytest.approx(2.0), "20 examples of one model at its own 10/s"
    assert reached(curves, 0.5).examples == {0: pytest.approx(20)}
    assert not reached(curves, 0.9).complete


def test_a_seed_that_never_reaches_the_accuracy_is_counted():
    curves = curves_of([turn(1, [0.9], 20), turn(2, [0.5], 20, incarnation=2)])
    found = reached(curves, 0.9)
    assert found.examples == {0: pytest.approx(20)}
    assert (found.seeds, found.complete) == (2, False)


def test_a_training_that_was_interrupted_and_started_again_counts_once():
    for first, second in ((0.5, 0.9), (0.9, 0.5)):  # the baseline's second start may be the one that was cut short
        curves = curves_of([turn(1, [first], 20), turn(2, [second], 20, incarnation=2, seed=0)])
        assert [curve.points[0].accuracy for curve in curves] == [0.9]
        assert reached(curves, 0.9).complete


def test_a_program_of_ones_own_and_a_training_that_diverged_have_a_curve():
    first, again = turn(4, [0.5], 20), turn(4, [0.9], 20, incarnation=2)
    own = [replace(each, spec={"strategy": "one-device", "command": "python train.py"}) for each in (first, again)]
    own[1].observed["worker-0"]["held_out"]["loss"] = None  # what JSON has of a NaN
    (curve,) = curves_of(own)
    assert (curve.seed, curve.points[0].accuracy) == (4, 0.9)
    assert math.isnan(curve.points[0].loss)
