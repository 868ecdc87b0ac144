import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.halving import faster_half, stages


@pytest.mark.parametrize(
    ("candidates", "expected"), [(1, [1]), (2, [2, 1]), (3, [3, 2, 1]), (7, [7, 4, 2, 1]), (8, [8, 4, 2, 1])]
)
def test_each_stage_has_half_of_the_candidates_until_one_is_left(candidates: int, expected: list[int]) -> None:
    assert list(stages(candidates)) == expected


def test_the_faster_half_stays_in_its_order() -> None:
    rates = {"default": {1: 10.0, 2: 10.0}, "a": {1: 9.0, 2: 11.0}, "b": {1: 8.0, 2: 8.0}, "c": {1: 12.0, 2: 20.0}}
    assert faster_half(rates, "default", ["a", "b", "c"]) == ("a", "c")
    assert faster_half(rates, "default", ["b", "a"]) == ("a",)


def test_the_mean_is_geometric() -> None:
    rates = {"default": {1: 1.0, 2: 1.0}, "a": {1: 1.0, 2: 16.0}, "b": {1: 5.0, 2: 5.0}}
    assert faster_half(rates, "default", ["a", "b"]) == ("b",)


def test_a_candidate_that_died_is_dropped() -> None:
    rates = {"default": {1: 10.0, 2: 10.0}, "a": {1: 99.0}, "b": {1: 1.0, 2: 1.0, 3: 1.0}}
    assert faster_half(rates, "default", ["a", "b", "c"]) == ("b",)
    assert faster_half(rates, "default", ["a"]) == ()


@given(st.dictionaries(st.text(min_size=1), st.floats(0.1, 1e6), min_size=1, max_size=9))
def test_nothing_that_is_dropped_is_faster_than_what_stays(figures: dict[str, float]) -> None:
    rates = {name: {1: figure} for name, figure in figures.items()}
    kept = faster_half({**rates, "": {1: 1.0}}, "", list(figures))
    assert len(kept) == math.ceil(len(figures) / 2)
    dropped = [figure for name, figure in figures.items() if name not in kept]
    assert max(dropped, default=0.0) <= min(figures[name] for name in kept)
