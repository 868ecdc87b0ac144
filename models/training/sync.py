"""Waiting for this task's devices, and agreeing with the other ranks."""

from collections.abc import Callable

import tensorflow as tf

from tfdist.models.training.context import TrainingContext


def wait_for_devices(strategy: tf.distribute.Strategy) -> None:
    """Return when this task's devices have finished all their work; a GPU runs kernels asynchronously.

    tf.test.experimental.sync_devices would also wait for the devices of other workers, which fails in a cluster.
    """
    for device in strategy.extended.worker_devices:
        with tf.device(device):
            tf.raw_ops.SyncDevice()


def mean_over_ranks(job: TrainingContext) -> Callable[[float], float]:
    """A function from this rank's seconds to their mean over all ranks, the same number on each.

    Ranks that step together must leave the warm-up together, or one waits forever in a collective.
    """
    if job.workers == 1:
        return lambda seconds: seconds

    @tf.function
    def mean(seconds: tf.Tensor) -> tf.Tensor:
        values = job.strategy.run(tf.identity, (seconds,))
        return job.strategy.reduce(tf.distribute.ReduceOp.MEAN, values, axis=None)

    return lambda seconds: float(mean(tf.constant(seconds)))
