"""A planted straggler: one worker computes its gradients slower, by an operation that only burns time."""

from collections.abc import Sequence

import tensorflow as tf

from tfdist.models.spec import TrainingSpec
from tfdist.models.training.context import TrainingContext
from tfdist.models.training.stamps import busy_wait, stamp


def is_slow(job: TrainingContext) -> bool:
    """Whether the replica that is traced now is one of the slow worker (of one process: the slow replica)."""
    if job.spec.slow_worker is None:
        return False
    if job.spec.workers > 1:
        return job.task.index == job.spec.slow_worker
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return bool(tf.get_static_value(replica) == job.spec.slow_worker)


def started(spec: TrainingSpec, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """When a batch is available, in seconds since 1970, and its images, which no operation gets earlier than that.

    Otherwise the clock may be read when most gradients are computed.
    """
    start = stamp((images, labels), spec.gpus)
    with tf.control_dependencies([start]):
        return start, tf.identity(images)


def slowed(
    spec: TrainingSpec, start: tf.Tensor, gradients: Sequence[tf.Tensor], share: "float | tf.Tensor" = 1.0
) -> list[tf.Tensor]:
    """The gradients, `slow_ms` and `slow_factor - 1` times their own time later.

    Args:
        spec: how slow.
        start: from `started`, when the computation of the gradients starts.
        gradients: of a replica; a while loop on their host burns the time, in pure TensorFlow, on remote workers too.
        share: 0.0 on workers that are not slow, if only a running graph knows.
    """
    end = stamp(gradients, spec.gpus)
    seconds = spec.slow_ms / 1000 + (spec.slow_factor - 1) * (end - start)
    with tf.control_dependencies([busy_wait(share * seconds, end)]):
        return [tf.identity(gradient) for gradient in gradients]
