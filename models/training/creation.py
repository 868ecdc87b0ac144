"""Creating the variables of a training, with fewer exchanges than TensorFlow makes by itself."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from tfdist.models.architectures.build import build as build_model
from tfdist.models.training import moving_averages, optimizers
from tfdist.models.training.context import TrainingContext
from tfdist.models.training.moving_averages import MovingAverages
from tfdist.strategies.options import Keras, StrategyName


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
    spreads = job.spec.strategy in (StrategyName.MIRRORED, StrategyName.MULTI_WORKER)
    if not spreads or job.spec.keras is not Keras.TWO:
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
