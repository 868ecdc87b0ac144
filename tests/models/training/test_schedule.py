"""Windows and warm-up, without a clock."""

from hypothesis import given
from hypothesis import strategies as st

from tfdist.models.spec import TrainingSpec
from tfdist.models.training.schedule import Schedule, schedule


def plan(steps: int, size: int = 10, warmup: int = 10, margin: int = 0, per_call: int = 1) -> Schedule:
    spec = TrainingSpec(steps=steps, steps_per_window=size, warmup_steps=warmup, steps_per_call=per_call)
    return schedule(spec, margin)


@given(st.integers(1, 2000), st.integers(1, 50), st.integers(0, 300), st.integers(0, 10))
def test_all_steps_are_trained_and_about_half_are_timed(total, size, warmup, margin):
    result = plan(total, size, warmup, margin)
    assert sum(result.warmup) + result.before + sum(result.timed) + result.after == total
    assert all(0 < window <= size for window in (*result.warmup, *result.timed))
    assert len(set(result.timed[:-1])) <= 1
    assert sum(result.warmup) == min(warmup, total // 2)
    assert 4 * sum(result.timed) >= total


@given(st.integers(4, 2000), st.integers(1, 50))
def test_at_least_two_windows_are_timed(total, size):
    assert len(plan(total, size).timed) >= 2


def test_the_first_step_is_a_window_of_its_own():
    assert plan(100).warmup == (1, 9)
    assert plan(100, warmup=1).warmup == (1,)


def test_no_warm_up_on_request():
    assert plan(30, warmup=0) == Schedule((), 0, (10, 10, 10), 0)


def test_steps_before_and_after_the_timed_ones():
    assert plan(40, size=8, margin=4) == Schedule((1, 8, 1), 4, (8, 8, 6), 4)
    assert plan(20, size=5, margin=4) == Schedule((1, 5, 4), 0, (5, 5), 0), "too few steps to spare any"


@given(st.integers(1, 500), st.integers(1, 50), st.integers(1, 60))
def test_all_windows_but_the_last_are_whole_calls(total, size, per_call):
    result = plan(total, size, per_call=per_call)
    assert sum(result.warmup) + sum(result.timed) == total
    assert all(window % per_call == 0 for window in result.timed[:-1])
