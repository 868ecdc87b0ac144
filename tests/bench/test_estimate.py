from dataclasses import replace

import pytest

from tfdist.bench.estimate import Spent, fitting_rounds, seconds_left, start_s
from tfdist.bench.plan import incarnations, interleave, spread
from tfdist.bench.suites.suite import Suite
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import StrategyName

SPECS = {"a": TrainingSpec(), "b": TrainingSpec(strategy=StrategyName.MULTI_WORKER, workers=2)}
SUITE = Suite((), turn_s=2.0, warmup_s=3.0)
STARTS = sum(map(start_s, SPECS.values())) + 2 * 3.0


def left_s(rounds: int, number: int, **values: float) -> float:
    blocks = tuple(incarnations(interleave(list(SPECS), rounds, 0), spread(rounds, number)))
    return seconds_left(blocks, SPECS, SUITE, **values)  # type: ignore[arg-type]


def test_each_process_adds_to_the_start() -> None:
    assert start_s(replace(SPECS["b"], workers=4)) > start_s(SPECS["b"]) > start_s(SPECS["a"])


def test_an_incarnation_is_its_starts_and_its_turns() -> None:
    rounds = left_s(12, 1) - left_s(6, 1)
    assert rounds == pytest.approx(6 * 2 * 2.5)
    assert left_s(12, 2) - left_s(12, 1) == pytest.approx(STARTS)
    assert left_s(6, 1) == pytest.approx(STARTS + rounds)


def test_arms_that_are_ready_start_no_more_and_slow_starts_stay_slow() -> None:
    assert left_s(6, 1) - left_s(6, 1, started=True) == pytest.approx(STARTS)
    assert left_s(6, 1, pace=2.0) - left_s(6, 1) == pytest.approx(STARTS - 6.0)


def test_nothing_left_takes_no_time() -> None:
    assert seconds_left((), SPECS, SUITE) == 0


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("isolated", [False, True])
def test_rounds_that_fit_into_a_time_are_estimated_to_take_it(number: int, isolated: bool) -> None:
    suite = replace(SUITE, incarnations=number, isolated=isolated)
    rounds = fitting_rounds(suite, SPECS, 600.0)
    blocks = [list(incarnations(interleave(list(SPECS), many, 0), spread(many, many if isolated else number)))
              for many in (rounds, rounds + 1)]  # fmt: skip
    fits, exceeds = (seconds_left(each, SPECS, suite) for each in blocks)
    assert fits <= 600 < exceeds
    assert fitting_rounds(suite, SPECS, 1.0) == 1


def test_the_time_left_is_what_starts_and_turns_took_so_far() -> None:
    spent = Spent()
    assert spent.left_s(0, 4, 2.5) == pytest.approx(4 * 3.0)
    spent.add_start(60.0)
    spent.add_start(30.0, again=True)
    assert spent.left_s(2, 0, 2.5) == pytest.approx(180.0)
    for seconds in (2.0, 4.0):
        spent.add_turn(seconds)
    assert spent.left_s(1, 10, 2.5) == pytest.approx(90.0 + 30.0)
