"""The tf.function that a parameter-server's worker runs for each closure that the chief schedules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.models.record import Storage
from tfdist.models.training import storage
from tfdist.models.training.context import TrainingContext
from tfdist.models.training.step import ReplicaStep
from tfdist.models.training.update_counts import UpdateCounts

Update = Callable[[Any, Any], tf.Tensor]
"""Trains a step on a batch of a source, with the worker's index; returns the loss."""


@dataclass(frozen=True)
class Parts:
    """What a closure is made of."""

    replica_step: ReplicaStep
    draw: Callable[[Any], Any]
    """Draws a batch from a source."""
    applied: tf.Variable
    """Number of examples, to which those of a closure are added at its end."""
    counts: UpdateCounts | None
    """Counts of the updates; None: they are not counted."""
    requests: dict[str, Storage]
    """Receives what a step moves to and from each server, when it is traced."""


def build(job: TrainingContext, parts: Parts) -> Any:
    """A tf.function that trains the steps of a closure, and returns the last one's loss.

    Its arguments are the source and, if `steps_per_call` is not 1, the number of steps.
    """
    update = _update(job, parts)
    needs_index = parts.counts is not None or job.spec.slow_worker is not None

    @tf.function
    def several(source: Any, worker: Any, steps: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(steps):
            loss = update(source, worker)
        return loss

    def index() -> Any:
        # in the outermost function: TensorFlow fills it in when the closure is sent to a worker
        return tf.distribute.coordinator.experimental_get_current_worker_index() if needs_index else None

    def counted(loss: tf.Tensor, steps: Any) -> tf.Tensor:
        with tf.control_dependencies([loss]):
            parts.applied.assign_add(job.batch * tf.cast(steps, tf.int64), use_locking=True, read_value=False)
        return loss

    if job.spec.steps_per_call == 1:
        return tf.function(lambda source: counted(update(source, index()), 1))
    return tf.function(lambda source, steps: counted(several(source, index(), steps), steps))


def _update(job: TrainingContext, parts: Parts) -> Update:
    slow = job.spec.slow_worker

    # A separate function: whatever depends on its result also waits for its updates.
    @tf.function
    def update(source: Any, worker: Any) -> tf.Tensor:
        slowness = () if slow is None else (tf.cast(worker == slow, tf.float64),)
        losses = job.strategy.run(parts.replica_step, (*parts.draw(source), *slowness))
        parts.requests.update(storage.requests(tf.compat.v1.get_default_graph()))
        return job.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    step: Update = update if parts.counts is None else parts.counts.around(update)
    return step
