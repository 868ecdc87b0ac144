"""The length of turns, and what the hosts used meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.bench.turns import HostReading, plan_turn, plan_warmup
from tfdist.launch.agents.messages import Inspected
from tfdist.launch.events import Turn


@pytest.mark.parametrize(
    ("step_s", "turn"),
    [
        (0.1, Turn(5, 5)),
        (0.01, Turn(5, 50)),
        (0.3, Turn(3, 3)),
        (2.0, Turn(1, 3)),  # a window has 3 steps, however long they take
        (0.0, Turn(5, 500_000)),
    ],
)
def test_turns_of_two_and_a_half_seconds(step_s, turn):
    assert plan_turn(2.5, step_s, 0.5) == turn


@given(st.floats(0.1, 60), st.floats(1e-4, 10), st.floats(0.01, 5))
def test_windows_are_long_enough_and_the_turn_is_about_as_long_as_wanted(seconds, step_s, window_s):
    turn = plan_turn(seconds, step_s, window_s)
    window = turn.steps * step_s
    assert turn.steps >= 3
    assert window >= window_s * (1 - 1e-9)
    assert abs(turn.windows * window - seconds) <= max(window, seconds) / 2 + window / 2


def test_the_warm_up_is_one_window():
    assert plan_warmup(3.0, 0.4) == Turn(1, 8)
    assert plan_warmup(3.0, 9.0) == Turn(1, 1)


def inspected(time: float, cpu: dict[str, float], busy: float, steal: float) -> Inspected:
    host = {"busy_s": busy, "steal_s": steal, "cores": 2.0, "available_bytes": 4e9}
    return Inspected(dict.fromkeys(cpu, "S"), {}, cpu, dict.fromkeys(cpu, 10**9), host, time)


def test_what_others_used_is_the_rest_of_the_busy_time():
    before = inspected(100.0, {"worker-0": 5.0, "ps-0": 1.0}, 1000.0, 7.0)
    after = inspected(102.0, {"worker-0": 6.5, "ps-0": 1.5}, 1003.0, 7.2)
    usage = HostReading(before, after).usage
    assert usage is not None
    assert usage.cpu_s == {"worker-0": 1.5, "ps-0": 0.5}
    assert usage.others == pytest.approx(0.25)
    assert usage.steal == pytest.approx(0.05)


def test_the_first_parking_has_no_usage():
    assert HostReading(None, inspected(1.0, {"worker-0": 1.0}, 1.0, 0.0)).usage is None
