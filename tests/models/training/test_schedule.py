"""Windows and warm-up, without a clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.models.spec import TrainingSpec
from tfdist.models.training.schedule import Schedule, schedule


def plan(steps, size=10, warmup=10) -> Schedule:
    return schedule(TrainingSpec(steps=steps, steps_per_window=size, warmup_steps=warmup))


def warmup_windows(result: Schedule, times) -> int:
    """How many windows are warm-up if window i takes times[i]; the last time repeats."""
    count = 0
    while not result.is_warm(tuple(times[min(i, len(times) - 1)] for i in range(count))):
        count += 1
    return count


steps = st.integers(1, 2000)
sizes = st.integers(1, 50)
warmups = st.integers(0, 300)


@given(steps, sizes, warmups, st.lists(st.floats(0.01, 10), min_size=1, max_size=30))
def test_all_steps_are_in_windows_and_at_least_half_are_timed(total, size, warmup, times):
    result = plan(total, size, warmup)
    assert sum(result.windows) == total
    assert all(0 < window <= size for window in result.windows)
    assert len(set(result.windows[:-1])) <= 1
    spent = sum(result.windows[: warmup_windows(result, times)])
    assert 2 * spent <= total
    assert spent >= min(warmup, total / 2 - result.windows[0])


@given(steps, sizes)
def test_no_warm_up_on_request(total, size):
    assert warmup_windows(plan(total, size, 0), [9.0, 1.0]) == 0


def test_the_warm_up_ends_when_two_windows_agree():
    assert warmup_windows(plan(200), [9.0, 2.0, 1.0, 1.03, 1.02]) == 5
    assert warmup_windows(plan(200), [1.0, 1.0]) == 2


def test_the_warm_up_lasts_at_least_the_requested_steps():
    assert warmup_windows(plan(200, warmup=55), [1.0]) == 6


def test_at_most_half_of_an_unstable_training_is_warm_up():
    assert warmup_windows(plan(200), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]) == 10


@pytest.mark.parametrize(
    ("total", "windows"), [(30, (10, 10, 10)), (25, (10, 10, 5)), (15, (7, 7, 1)), (2, (1, 1)), (1, (1,))]
)
def test_short_trainings_have_small_windows(total, windows):
    assert plan(total).windows == windows
