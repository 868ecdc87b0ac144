"""Sums over the workers of a synchronous job: how its ranks take the same decision."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tfdist.models.training.context import TrainingContext

Sum = Callable[[Sequence[float]], list[float]]
"""The sum of each value over all workers, the same on all of them. Every worker must call it, in the same order."""


def make_sum(job: TrainingContext) -> Sum:
    """The sum over the workers that step together; of a job with one, its own values."""
    if job.workers == 1:
        return list

    @tf.function
    def total(values: tf.Tensor) -> tf.Tensor:
        # each replica contributes an equal part of its worker's value
        parts = job.strategy.run(lambda value: value / job.replicas, (values,))
        return job.strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)

    def summed(values: Sequence[float]) -> list[float]:
        result: list[float] = total(tf.constant(list(values), tf.float64)).numpy().tolist()
        return result

    return summed
