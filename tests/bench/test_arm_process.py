"""The messages of an arm's job, replayed: when a turn has ended, and with which figures."""

import math
from types import SimpleNamespace

import pytest

from tfdist.bench.arm_process import TurnState
from tfdist.launch.agents.inbox import NextTurn
from tfdist.launch.agents.messages import Event, Inspected
from tfdist.launch.errors import TfdistError

WINDOW = {"steps": 3, "examples": 24, "elapsed_s": 0.3, "loss": None, "usage": None}
WORKERS = ("worker-0", "worker-1")
READING = Inspected({"worker-0": "S", "worker-1": "S"}, {})


def state() -> TurnState:
    plans = [SimpleNamespace(task=SimpleNamespace(name=name), host=SimpleNamespace(name="h1")) for name in WORKERS]
    job = SimpleNamespace(leading=WORKERS, hosts=("h1",), plans=plans)
    return TurnState(job, SimpleNamespace())  # type: ignore[arg-type]


def barrier(task: str, step_s: object = 0.1) -> Event:
    return Event(task, 0.0, {"event": "barrier", "step_s": step_s})


def turn(task: str, *windows: object) -> Event:
    return Event(task, 0.0, {"event": "turn", "windows": list(windows)})


def test_a_turn_ends_with_the_reading_after_the_last_task_waits():
    messages = state()
    assert [messages.update(message) for message in (barrier("worker-0"), barrier("worker-1", 0.2))] == [None, None]
    step_s, windows, readings = messages.update(READING) or pytest.fail("not parked")
    assert (step_s, windows, len(readings)) == (0.2, {}, 1)
    for message in (NextTurn({}), READING, turn("worker-0", WINDOW), barrier("worker-0"), turn("worker-1", WINDOW)):
        assert messages.update(message) is None
    assert messages.update(barrier("worker-1")) is None
    _, windows, readings = messages.update(READING) or pytest.fail("not parked")
    assert {task: len(rows) for task, rows in windows.items()} == {"worker-0": 1, "worker-1": 1}
    assert readings[0].before is READING


def test_readings_after_a_failure_of_a_parked_task_do_not_end_its_turn_again():
    messages = state()
    for message in (barrier("worker-0"), barrier("worker-1")):
        messages.update(message)
    assert messages.update(READING) is not None
    assert messages.update(READING) is None


@pytest.mark.parametrize("step_s", [None, "1", math.nan, math.inf])
def test_a_wrong_step_time_names_the_task_and_the_value(step_s):
    with pytest.raises(TfdistError, match=rf"worker-1 waits at the barrier with step_s {step_s!r}: .*protocol\.md"):
        state().update(barrier("worker-1", step_s))


@pytest.mark.parametrize("window", [{"steps": 3}, {**WINDOW, "elapsed_s": -1.0}, {**WINDOW, "steps": 1 << 60}, 3])
def test_an_incomplete_window_names_the_task(window):
    with pytest.raises(TfdistError, match=r"worker-0 sent an incomplete turn \(windows: .*protocol\.md"):
        state().update(turn("worker-0", window))


@pytest.mark.parametrize("observed", [3, {"held_out": {"accuracy": "all"}}, {"updates": [[-1]]}, {"collectives": [{}]}])
def test_wrong_observations_name_the_task(observed):
    event = {"event": "turn", "windows": [WINDOW], "observed": observed}
    with pytest.raises(TfdistError, match=r"worker-0 sent an incomplete turn \(observed: .*protocol\.md"):
        state().update(Event("worker-0", 0.0, event))


def test_the_loss_of_a_training_that_diverged_is_unknown():
    messages = state()
    messages.update(turn("worker-0", {**WINDOW, "loss": math.nan}))
    assert messages.windows["worker-0"][0].loss is None
