import itertools

import pytest
from hypothesis import given
from hypothesis.strategies import integers

from tfdist.bench.compare.gate import LONGEST, gate_needs, is_too_slow, may_be_too_slow, parse_share
from tfdist.bench.noise import FEWEST_SURE
from tfdist.bench.statistics import Comparison, Interval
from tfdist.launch.errors import TfdistError


@given(integers(0, 99))
def test_per_cent_and_fraction_are_the_same(percent: int) -> None:
    assert parse_share(f"{percent}%", "--x") == parse_share(f"{percent / 100}", "--x") == pytest.approx(percent / 100)


@pytest.mark.parametrize("text", ["5", "100%", "-1%", "5 per cent", "", "%", "nan", "1e-2", "1.0"])
def test_anything_else_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(TfdistError, match=r"^--fail-slower .*as 5% or 0\.05"):
        parse_share(text, "--fail-slower")


def test_only_an_interval_below_the_bound_is_too_slow() -> None:
    def found(high: float) -> Comparison:
        return Comparison(0.9, Interval(0.8, high, 0.95), 12, 1)

    assert is_too_slow(found(0.94), 0.05)
    assert not is_too_slow(found(0.96), 0.05)
    assert not is_too_slow(Comparison(0.5, None, 2, 1), 0.05)
    assert not is_too_slow(None, 0.05)
    assert not is_too_slow(
        Comparison(0.9, Interval(0.8, 0.94, 0.95), 12, 1, least=0.12), 0.05
    )  # equal arms differ more


def test_what_may_be_too_slow_reaches_below_the_bound_or_was_not_compared() -> None:
    def found(low: float, high: float) -> Comparison:
        return Comparison(0.97, Interval(low, high, 0.95), 12, 1)

    assert may_be_too_slow(found(0.94, 1.02), 0.05)
    assert not may_be_too_slow(found(0.96, 1.02), 0.05)
    assert not may_be_too_slow(found(0.8, 0.94), 0.05)  # it surely is
    assert may_be_too_slow(Comparison(0.97, None, 2, 1), 0.05)
    assert may_be_too_slow(None, 0.05)


def test_a_gate_needs_more_starts_for_a_smaller_bound_and_for_more_arms() -> None:
    assert [gate_needs(pairs, 0.05, 3)[0] for pairs in (1, 2, 4, 8)] == [13, 16, 20, 24]
    assert gate_needs(1, 0.1, 3)[0] == FEWEST_SURE < gate_needs(1, 0.05, 3)[0] < gate_needs(1, 0.03, 3)[0]
    assert gate_needs(1, 0.05, rounds=1)[0] > gate_needs(1, 0.05, rounds=10)[0]
    assert gate_needs(2, 0.03, 3)[0] == gate_needs(1, 0.001, 3)[0] == LONGEST + 1


def test_the_intervals_of_a_gate_leave_room_to_see_twice_its_bound() -> None:
    for pairs, bound in itertools.product((1, 2, 8), (0.04, 0.05, 0.1)):
        _, precision = gate_needs(pairs, bound, 3)
        assert 0.01 < precision < (1 - bound) / (1 - 2 * bound) - 1
