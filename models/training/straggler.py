"""A planted straggler: one worker computes its gradients slower, by an operation that only burns time.

The clock inside a tf.function says when a device has computed something.
"""

from collections.abc import Sequence

import tensorflow as tf

from tfdist.models.spec import TrainingSpec
from tfdist.models.training.context import TrainingContext


def stamp(after: Sequence[tf.Tensor], gpus: bool) -> tf.Tensor:
    """Seconds since 1970, a float64 scalar in the host's memory, at which the device has computed all of `after`.

    On a GPU operations are only queued, and a control dependency does not wait for them. So the smallest of the
    tensors is copied to the host: it arrives when the GPU has done all that was queued before. Run on one H200.
    """
    with tf.control_dependencies(after):
        if not gpus:
            return out_of_order(tf.timestamp())
        smallest = tf.identity(min(after, key=lambda tensor: tensor.shape.num_elements() or 0))
    with tf.device("CPU:0"):
        # a value that is used, or graph optimization would replace the copy by a control dependency
        zero = tf.minimum(tf.abs(tf.cast(tf.reduce_max(tf.identity(smallest)), tf.float64)), 0.0)
        with tf.control_dependencies([zero]):
            now = out_of_order(tf.timestamp())
        return now + tf.where(tf.math.is_nan(zero), tf.zeros_like(zero), zero)


def busy_wait(seconds: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
    """Occupies a core of the current device's host until `seconds` after `start`; returns the time at its end."""
    until = start + seconds
    end = tf.while_loop(lambda now: now < until, lambda now: (tf.timestamp(),), (start,), parallel_iterations=1)
    return out_of_order(end[0])


def out_of_order(tensor: tf.Tensor) -> tf.Tensor:
    """`tensor`, whose operation waits for its inputs only.

    tf.function runs all operations with side effects in the order of the program, and reading the clock is one: the
    replicas of a process would wait for each other (auto_control_deps.py of TensorFlow 2.21 and 2.22).
    """
    manager = getattr(tf.compat.v1.get_default_graph(), "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(tensor.op)
    return tensor


def is_slow(job: TrainingContext) -> bool:
    """Whether the replica that is traced now is one of the slow worker (of one process: the slow replica)."""
    if job.spec.slow_worker is None:
        return False
    if job.spec.workers > 1:
        return job.task.index == job.spec.slow_worker
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    return bool(tf.get_static_value(replica) == job.spec.slow_worker)


def start_time(spec: TrainingSpec, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """When a batch is available, in seconds since 1970, and its images, which no operation gets earlier than that.

    Otherwise the clock may be read when most gradients are computed.
    """
    start = stamp((images, labels), spec.gpus)
    with tf.control_dependencies([start]):
        return start, tf.identity(images)


def delay(
    spec: TrainingSpec, start: tf.Tensor, gradients: Sequence[tf.Tensor], share: "float | tf.Tensor" = 1.0
) -> list[tf.Tensor]:
    """The gradients, `slow_ms` and `slow_factor - 1` times their own time later.

    Args:
        spec: how slow.
        start: from `start_time`, when the computation of the gradients starts.
        gradients: of a replica; a while loop on their host burns the time, in pure TensorFlow, on remote workers too.
        share: 0.0 on workers that are not slow, if only a running graph knows.
    """
    end = stamp(gradients, spec.gpus)
    seconds = spec.slow_ms / 1000 + (spec.slow_factor - 1) * (end - start)
    with tf.control_dependencies([busy_wait(share * seconds, end)]):
        return [tf.identity(gradient) for gradient in gradients]
