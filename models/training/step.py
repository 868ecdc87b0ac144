"""One training step: each replica's gradients of its own batch, averaged over the global batch, applied once."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdist.models.training import optimizers, straggler
from tfdist.models.training.context import TrainingContext
from tfdist.models.training.creation import create
from tfdist.models.training.moving_averages import MovingAverages
from tfdist.models.training.straggler import stamp
from tfdist.strategies.catalog import CATALOG, Exchange

ReplicaStep = Callable[[tf.Tensor, tf.Tensor], Any]


def build(job: TrainingContext) -> tuple[tf.keras.Model, Any, MovingAverages | None, ReplicaStep]:
    """The model, its optimizer and averages, and the step of one replica, which returns its part of the mean loss.

    The parts sum to the mean, because gradients are summed over replicas
    (https://www.tensorflow.org/tutorials/distribute/custom_training). With `step_times` the step also returns when its
    gradients were ready.
    """
    model, optimizer, averages = create(job)
    per_example = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def gradients(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            losses = per_example(labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=job.batch)
            scaled = optimizers.scale(optimizer, loss)
        return loss, tape.gradient(scaled, model.trainable_variables)

    def apply(unscaled: list[tf.Tensor]) -> None:
        optimizer.apply_gradients(zip(unscaled, model.trainable_variables, strict=True))
        if averages is not None:
            averages.update()

    if job.spec.xla:
        # The all-reduce stays outside: on a CPU, XLA has no collectives between processes.
        gradients = tf.function(gradients, jit_compile=True)

    def step(images: tf.Tensor, labels: tf.Tensor, slowness: tf.Tensor | None = None) -> Any:
        """`slowness`: 1.0 on the slow worker and else 0.0, if only a running graph knows which one it is."""
        if slowness is None and not straggler.is_slow(job):
            loss, scaled = gradients(images, labels)
        else:
            start, images = straggler.started(job.spec, images, labels)
            loss, scaled = gradients(images, labels)
            scaled = straggler.slowed(job.spec, start, scaled, 1.0 if slowness is None else slowness)
        unscaled = optimizers.unscale(optimizer, scaled)
        if not job.spec.step_times:
            apply(unscaled)
            return loss
        ready = stamp(unscaled, job.spec.gpus)
        if CATALOG[job.spec.strategy].exchange is Exchange.NONE:
            # as in an exchange of all gradients, the update starts when all are ready: a phase of its own
            with tf.control_dependencies([ready]):
                unscaled = [tf.identity(gradient) for gradient in unscaled]
        apply(unscaled)
        return loss, ready

    return model, optimizer, averages, step
