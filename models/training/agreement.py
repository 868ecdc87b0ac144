"""Ranks that step together must leave the warm-up together, or the first collective of one waits for ever."""

from collections.abc import Callable

import tensorflow as tf

from tfdist.models.training.context import TrainingContext
from tfdist.models.training.windows import alone


def agreement(job: TrainingContext) -> Callable[[float], float]:
    """From the seconds that this rank measured to the mean over all ranks: the same number on each of them."""
    if job.workers == 1:
        return alone

    @tf.function
    def mean(seconds: tf.Tensor) -> tf.Tensor:
        measured = job.strategy.run(tf.identity, (seconds,))
        return job.strategy.reduce(tf.distribute.ReduceOp.MEAN, measured, axis=None)

    return lambda elapsed_s: float(mean(tf.constant(elapsed_s)))
