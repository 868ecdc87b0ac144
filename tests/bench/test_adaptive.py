"""What a look at a bench decides, on figures with a known noise. What a bench does then: test_run_session.py."""

import math
import random
from collections.abc import Mapping

from tfdist.bench.adaptive import look
from tfdist.bench.design import Block
from tfdist.bench.statistics import Statistics


def statistics(means: Mapping[str, float], starts: int, noise: float = 0.01) -> Statistics:
    """Three rounds a start, with equal noise from turn to turn and from start to start."""
    draw = random.Random(f"{means}/{starts}")
    rates: dict[str, dict[Block, float]] = {arm: {} for arm in means}
    for arm, mean in means.items():
        for start in range(starts):
            luck = draw.gauss(0, noise)
            for turn in range(3):
                rates[arm][Block(0, 3 * start + turn, start + 1)] = mean * math.exp(luck + draw.gauss(0, noise))
    return Statistics(rates)


def test_after_one_start_only_a_large_difference_is_sure() -> None:
    figures = statistics({"a": 100.0, "b": 97.0, "c": 50.0}, 1)
    found = look(figures, ["a", "b", "c"], starts=1, planned=4, equal=0.05)
    assert (found.best, found.slower, found.open, found.is_decided) == ("a", ("c",), ("b",), False)


def test_arms_that_are_equal_within_the_margin_are_decided() -> None:
    figures = statistics({"a": 100.0, "b": 99.9}, 4, noise=0.002)
    found = look(figures, ["a", "b"], starts=4, planned=4, equal=0.05)
    assert (found.slower, found.open, found.hopeless) == ((), (), False)


def test_what_more_starts_cannot_tell_apart_is_hopeless() -> None:
    figures = statistics({"a": 100.0, "b": 100.0}, 3, noise=0.02)
    strict = look(figures, ["a", "b"], starts=3, planned=4, equal=0.001)
    assert (len(strict.open), strict.hopeless, strict.is_decided) == (1, True, True)
    assert not look(figures, ["a", "b"], starts=3, planned=300, equal=0.03).hopeless, "with 300 starts it is told"
    assert look(figures, ["a", "b"], starts=3, planned=4, equal=0.3).open == ()


def test_a_bench_is_not_worth_to_continue_for_at_most_half_of_what_is_open() -> None:
    figures = statistics({"a": 100.0, "b": 94.0, "c": 99.0}, 2, noise=0.003)
    one, half = (
        look(figures, arms, starts=2, planned=4, equal=0.01, number=4) for arms in (["a", "b"], ["a", "b", "c"])
    )
    assert (one.open, one.hopeless) == (("b",), False), "slower for sure after four starts"
    assert (half.open, half.hopeless) == (("b", "c"), True), "c is not"


def test_the_more_arms_compete_the_larger_a_sure_difference_is() -> None:
    figures = statistics({"a": 100.0, "b": 90.0}, 2)
    few, many = (look(figures, ["a", "b"], starts=2, planned=4, equal=0.05, number=number) for number in (2, 100_000))
    assert (few.slower, many.slower) == (("b",), ())


def test_differences_that_few_starts_do_not_show_are_not_sure() -> None:
    figures = statistics({"a": 100.0, "b": 96.0}, 3, noise=0.0001)
    assert look(figures, ["a", "b"], starts=3, planned=4, equal=0.01).slower == ()
    figures = statistics({"a": 100.0, "b": 96.0}, 4, noise=0.0001)
    assert look(figures, ["a", "b"], starts=4, planned=4, equal=0.01).slower == ("b",)
