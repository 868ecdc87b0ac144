"""Steps in calls."""

from hypothesis import given
from hypothesis import strategies as st

from tfdist.models.spec import calls, whole_calls


@given(st.integers(0, 500), st.integers(1, 60))
def test_calls_have_the_same_steps_but_for_a_remainder(steps, per_call):
    sizes = calls(steps, per_call)
    assert sum(sizes) == steps
    assert all(size == per_call for size in sizes[:-1])
    assert whole_calls(steps, per_call) == per_call * len(sizes)
