"""Sums over the workers of a synchronous job: how its ranks take the same decision, and exit together."""

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import tensorflow as tf

from tfdist.launch import events
from tfdist.models.spec import INHERITED
from tfdist.models.training.context import TrainingContext

Sum = Callable[[Sequence[float]], list[float]]
"""The sum of each value over all workers, the same on all of them. Every worker must call it, in the same order."""
LIMIT_S = 10.0
"""Seconds for workers of other launchers to arrive at the barrier before the exit."""


def make_sum(strategy: tf.distribute.Strategy, workers: int) -> Sum:
    """The sum over the workers that step together; of a job with one, its own values."""
    if workers == 1:
        return list
    replicas = strategy.num_replicas_in_sync // workers

    @tf.function
    def total(values: tf.Tensor) -> tf.Tensor:
        # each replica contributes an equal part of its worker's value
        parts = strategy.run(lambda value: value / replicas, (values,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)

    def summed(values: Sequence[float]) -> list[float]:
        return list(map(float, total(tf.constant(list(values), tf.float64)).numpy()))

    return summed


def wait_before_exit(job: TrainingContext) -> None:
    """Return when all tasks that step together have called this function: an exit would break another one's exchange.

    Their launcher holds them. Workers with launchers of their own take a sum instead, which needs a value of each, and
    wait for at most `LIMIT_S` seconds.
    """
    events.wait_at_barrier()
    if INHERITED in os.environ and job.workers > 1:
        wait_for_sum(make_sum(job.strategy, job.workers), LIMIT_S)


def wait_for_sum(summed: Sum, limit_s: float) -> None:
    """Take a sum over all workers, for at most `limit_s` seconds; an error ends it, too: another worker has exited."""

    def take() -> None:
        with suppress(tf.errors.OpError):
            summed([0.0])

    thread = threading.Thread(target=take, name="exit barrier", daemon=True)
    thread.start()
    thread.join(limit_s)
