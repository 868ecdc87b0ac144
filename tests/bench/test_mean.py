"""Means and ratios over seeds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.mean import over_seeds, ratio_over_seeds

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
    assert (ratio.seeds, ratio.value) == (3, pytest.approx(2.0))
    assert ratio.interval.high == pytest.approx(2.0), "what differs from seed to seed alike is no noise"
    assert ratio_over_seeds({0: 1.0}, {1: 1.0}) is None


@given(st.lists(POSITIVE, min_size=3, max_size=9), POSITIVE)
def test_units_do_not_matter(values, unit):
    one, other = over_seeds(values), over_seeds([unit * value for value in values])
    assert other.value == pytest.approx(unit * one.value)
    assert other.interval.low == pytest.approx(unit * one.interval.low)
    assert one.interval.low <= one.value * (1 + 1e-9)
