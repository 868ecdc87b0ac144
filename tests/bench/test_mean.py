"""Means over the starts of arms, means and ratios over seeds."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.design import Block
from tfdist.bench.mean import Mean, means_of, over_seeds, ratio_over_seeds

POSITIVE = st.floats(1e-3, 1e6)


def test_a_known_interval():
    """Student's t with 2 degrees of freedom is 4.303; the logarithms have standard deviation 1."""
    found = over_seeds([math.exp(each) for each in (-1.0, 0.0, 1.0)])
    assert found.value == pytest.approx(1.0)
    assert math.log(found.interval.high) == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert found.interval.low == pytest.approx(1 / found.interval.high)


def test_two_seeds_have_no_interval():
    assert over_seeds([2.0, 8.0]).interval is None
    assert over_seeds([2.0, 8.0]).value == pytest.approx(4.0)
    assert over_seeds([]) is None


def test_a_ratio_is_that_of_equal_seeds():
    ratio = ratio_over_seeds({0: 2.0, 1: 20.0, 2: 200.0, 9: 1.0}, {0: 1.0, 1: 10.0, 2: 100.0})
    assert ratio.value == pytest.approx(2.0)
    assert ratio.interval.high == pytest.approx(2.0), "what differs from seed to seed alike is no noise"
    assert ratio_over_seeds({0: 1.0}, {1: 1.0}) is None


@given(st.lists(POSITIVE, min_size=3, max_size=9), POSITIVE)
def test_units_do_not_matter(values, unit):
    one, other = over_seeds(values), over_seeds([unit * value for value in values])
    assert other.value == pytest.approx(unit * one.value)
    assert other.interval.low == pytest.approx(unit * one.interval.low)
    assert one.interval.low <= one.value * (1 + 1e-9)


def means(*arms: Sequence[Sequence[float]], least: float = -math.inf) -> list[Mean]:
    """Of arms with steps of 100 ms: the milliseconds of each turn of each start."""
    values = {}
    for name, starts in enumerate(arms):
        turns = [(start, value) for start, of_start in enumerate(starts, start=1) for value in of_start]
        values[str(name)] = {Block(1, number, start): value for number, (start, value) in enumerate(turns)}
    return list(means_of(values, dict.fromkeys(values, 100.0), 2, least).values())


def width(mean: Mean) -> float:
    assert mean.low is not None
    assert mean.high is not None
    return mean.high - mean.low


FOUR = ((8.0, 10.0), (11.0, 11.0), (13.0, 11.0), (10.0, 14.0))
"""Starts with means of 9, 11, 12 and 12."""


def test_the_interval_of_one_arm_is_students_over_its_starts():
    """t with 3 degrees of freedom is 3.182; the starts have a standard deviation of 1.414."""
    (mean,) = means(FOUR)
    assert (mean.value, mean.starts) == (11.0, pytest.approx((9.0, 11.0, 12.0, 12.0)))
    assert width(mean) / 2 == pytest.approx(3.1824 * math.sqrt(2) / 2, rel=1e-4)


def test_arms_with_the_starts_of_one_reference_are_not_more_starts():
    assert [width(mean) for mean in means(FOUR, FOUR, FOUR)] == pytest.approx([width(*means(FOUR))] * 3)


def test_other_arms_widen_the_interval_of_an_arm_whose_starts_are_alike_by_luck():
    alike = ((11.0, 11.0), (11.01, 11.0), (11.0, 11.01), (11.0, 11.0))
    assert width(means(alike, FOUR, FOUR[::-1])[0]) > 10 * width(*means(alike))


def test_two_starts_or_one_have_an_interval_of_some_percent_of_a_step():
    """Each start of two arms is assumed to differ by 2.3 %: by 3.3 ms of 100 of the difference."""
    for starts in (((10.0, 11.0), (12.0, 13.0)), ((10.0, 11.0, 12.0),)):
        (mean,) = means(starts)
        assert 6 < width(mean) < 20


def test_two_turns_have_no_interval():
    (mean,) = means(((10.0,), (12.0,)))
    assert (mean.value, mean.low, mean.differs) == (11.0, None, False)


def test_limits_are_not_below_the_least_value():
    (mean,) = means(((1.0, 2.0), (3.0, 4.0)), least=0.0)
    assert mean.low == 0.0
    assert mean.high > 4.0


def test_a_mean_does_not_differ_from_0_if_its_starts_disagree_on_the_sign():
    surely = Mean(5.0, 1.0, 9.0, (4.0, 6.0))
    assert surely.differs
    assert surely.spread == pytest.approx(0.5)
    disagreeing = Mean(5.0, 1.0, 9.0, (-1.0, 11.0))
    assert disagreeing.disagrees
    assert not disagreeing.differs


@pytest.mark.slow
@pytest.mark.parametrize(
    "arms", [pytest.param(1, marks=pytest.mark.thorough), 3, pytest.param(9, marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize("shared", [0.0, 0.5])
@pytest.mark.parametrize("spreads", [(1.0,), (0.5, 1.0, 2.0)])
def test_intervals_of_four_starts_hold_the_mean_in_93_percent_or_more(arms, shared, spreads):
    """Of every arm, whatever the part of the variance that arms have in common, and if their starts differ unequally."""
    generator, held, draws = random.Random(3), [0] * arms, 1000

    def starts(sd):
        return [sd * generator.gauss(0, 2) for _ in range(4)]

    for _ in range(draws):
        common = starts(shared**0.5)
        own = [starts(spreads[arm % len(spreads)] * (1 - shared) ** 0.5) for arm in range(arms)]
        found = means(*([[one + other] for one, other in zip(of_arm, common, strict=True)] for of_arm in own))
        held = [number + (mean.low <= 0 <= mean.high) for number, mean in zip(held, found, strict=True)]
    assert min(held) / draws > 0.93 - 2.5 * math.sqrt(0.93 * 0.07 / draws)
    assert sum(held) / draws / arms < 0.985
