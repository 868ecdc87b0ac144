"""The clock in a step: it is read after what it waits for, and what a turn reports is complete."""

import time
from typing import Any

import pytest
import tensorflow as tf

from tfdist.models.training.loop import StepTimes
from tfdist.models.training.straggler import busy_wait, stamp


@pytest.mark.parametrize("gpus", [False, True])
@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_the_clock_is_read_after_what_it_waits_for(gpus: bool, value: float) -> None:
    """With `gpus` by a copy to the host, whatever is in it."""

    @tf.function
    def step(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first = stamp([values], gpus)
        with tf.control_dependencies([busy_wait(tf.constant(0.01, tf.float64), first)]):
            late = tf.identity(values)
        return first, stamp([values, late], gpus)

    first, last = step(tf.constant([value, 2.0]))
    assert abs(float(first) - time.time()) < 60
    assert float(last - first) >= 0.01


def test_a_turn_reports_each_step_once() -> None:
    def step(source: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return 2 * source, stamp([source], gpus=False)

    times = StepTimes(tf.distribute.get_strategy(), False, 400)
    call = times.measured(step)
    for number in range(3):
        assert float(call(tf.constant(float(number)), 1)) == 2 * number
    observed: dict[str, Any] = times.take()
    assert (len(observed["ready"]), len(observed["ready"][0]), len(observed["done"])) == (1, 3, 3)
    assert observed["done"][0] == 0.0
    assert all(ready <= done for ready, done in zip(observed["ready"][0], observed["done"], strict=True))
    assert observed["gradient_bytes"] == 400
    assert times.take()["done"] == []


@pytest.mark.slow
def test_a_window_reports_the_own_time_of_some_steps_and_not_what_was_between_windows() -> None:
    def step(source: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        begun = stamp([source], gpus=False)
        with tf.control_dependencies([busy_wait(tf.constant(0.005, tf.float64), begun)]):
            late = tf.identity(source)
        return 2 * source, begun, stamp([late], gpus=False)

    times = StepTimes(tf.distribute.get_strategy(), False, 400)
    call = times.measured(step)
    call(tf.constant(0.0), 1)
    assert times.since(1, 1) == {"every": 2}  # there is no step before it
    for last, count in ((4, 3), (28, 24)):
        time.sleep(1.0)  # a checkpoint
        for _ in range(count):
            call(tf.constant(0.0), 1)
        found = times.since(last, count)
        assert (found["every"], len(found["own_ms"])) == ((1, 2) if count == 3 else (4, 6))
        assert len(found["input_ms"]) == len(found["own_ms"])
        assert all(5 <= own < 1000 for own in found["own_ms"])
        assert all(waited < own for waited, own in zip(found["input_ms"], found["own_ms"], strict=True))
