"""The start-up phases of a task."""

from hypothesis import given
from hypothesis import strategies as st

from tfdist.models.training.task import phases_after_import


def test_phases_follow_each_other():
    assert phases_after_import(10.0, 13.0, 18.0, 25.0) == {"strategy": 3.0, "build": 5.0, "trace": 7.0}


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4).map(sorted))
def test_phases_sum_to_the_whole_time(edges):
    assert sum(phases_after_import(*edges).values()) == edges[-1] - edges[0]
