"""One training step: each replica's gradients of its own batch, averaged over the global batch, applied once.

Its variables are created with fewer exchanges than TensorFlow makes by itself.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from tfdist.launch import events
from tfdist.models.architectures.build import build as build_model
from tfdist.models.datasets.table import SYNTHETIC
from tfdist.models.training import moving_averages, optimizers, straggler
from tfdist.models.training.context import TrainingContext
from tfdist.models.training.moving_averages import MovingAverages
from tfdist.models.training.straggler import stamp
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import Keras

ReplicaStep = Callable[[tf.Tensor, tf.Tensor], Any]
Gradients = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, list[tf.Tensor]]]
"""From a replica's batch: its part of the mean loss, and the gradients of the scaled loss."""


def create(job: TrainingContext) -> tuple[tf.keras.Model, Any, MovingAverages | None]:
    """The model of a training, its optimizer, and its averages, with their variables."""
    with job.strategy.scope(), _reading_own_copies(job):
        model = build_model(job.spec)
    with _scope_of_constants(job.strategy):
        optimizer = optimizers.build(job.spec, model)
    with job.strategy.scope():
        return model, optimizer, moving_averages.create(job.spec.ema, model)


def _reading_own_copies(job: TrainingContext) -> AbstractContextManager[object]:
    """Let layers that are called while a model is built read the copy of the first replica of this worker.

    Elsewhere, tf_keras' BatchNorm reads the mean of all replicas' moving statistics: TensorFlow builds an all-reduce
    for each of the 104 of MobileNetV2, and runs none of them. That takes 0.7 to 1 s of CPU time with two workers, 0.5 s
    with two devices.
    """
    if CATALOG[job.spec.strategy].all_reduce is None or job.spec.keras is not Keras.TWO:
        return nullcontext()
    context: AbstractContextManager[object] = tf.distribute.ReplicaContext(job.strategy, job.task.index * job.replicas)
    return context


@contextmanager
def _scope_of_constants(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """The scope of a strategy for variables that start with the same value on all workers, as slots do: it is not sent.

    MultiWorkerMirroredStrategy would broadcast that of each variable by itself, 4 ms each. It puts the broadcast in the
    place of the initial value between the inner and the outer creator here. Other replicas copy the first one.
    """
    own: list[Any] = []

    def note(create: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        own[:] = [options["initial_value"]]
        return create(**options)

    def restore(create: Callable[..., tf.Variable], **options: Any) -> tf.Variable:
        return create(**{**options, "initial_value": own.pop()} if own else options)

    with tf.variable_creator_scope(restore), strategy.scope(), tf.variable_creator_scope(note):
        yield


def build(job: TrainingContext) -> tuple[tf.keras.Model, Any, MovingAverages | None, ReplicaStep]:
    """The model, its optimizer and averages, and the step of one replica, which returns its part of the mean loss.

    The parts sum to the mean, because gradients are summed over replicas
    (https://www.tensorflow.org/tutorials/distribute/custom_training). With `step_times` the step also returns when its
    gradients were ready and, outside of turns, before that when its batch was there.
    """
    model, optimizer, averages = create(job)
    times_input = bool(job.spec.step_times) and job.spec.dataset != SYNTHETIC and not events.in_turns()
    gradients = _gradient_function(job, model, optimizer)

    def apply(unscaled: list[tf.Tensor]) -> None:
        optimizer.apply_gradients(zip(unscaled, model.trainable_variables, strict=True))
        if averages is not None:
            averages.update()

    def step(images: tf.Tensor, labels: tf.Tensor, slowness: tf.Tensor | None = None) -> Any:
        """`slowness`: 1.0 on the slow worker and else 0.0, if only a running graph knows which one it is."""
        is_slow = slowness is not None or straggler.is_slow(job)
        begun = []
        if is_slow or times_input:
            start, images = straggler.start_time(job.spec, images, labels)
            begun = [start] if times_input else []
        loss, scaled = gradients(images, labels)
        if is_slow:
            scaled = straggler.delay(job.spec, start, scaled, 1.0 if slowness is None else slowness)
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
        return loss, *begun, ready

    return model, optimizer, averages, step


def _gradient_function(job: TrainingContext, model: tf.keras.Model, optimizer: Any) -> Gradients:
    per_example = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def gradients(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            losses = per_example(labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=job.batch)
            scaled = optimizers.scale(optimizer, loss)
        return loss, tape.gradient(scaled, model.trainable_variables)

    if not job.spec.xla:
        return gradients
    # The all-reduce stays outside: on a CPU, XLA has no collectives between processes.
    compiled: Gradients = tf.function(gradients, jit_compile=True)
    return compiled
