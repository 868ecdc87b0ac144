"""What a task says of its start-up."""

from hypothesis import given
from hypothesis import strategies as st

from tfdist.models.training.task import start_up


def test_each_phase_begins_where_the_one_before_has_ended():
    assert start_up(10.0, 13.0, 18.0, 25.0) == {"strategy": 3.0, "build": 5.0, "trace": 7.0}


@given(st.lists(st.integers(0, 1000), min_size=4, max_size=4).map(sorted))
def test_the_phases_sum_to_the_whole(edges):
    assert sum(start_up(*edges).values()) == edges[-1] - edges[0]
