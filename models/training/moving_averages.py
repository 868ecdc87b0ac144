"""Moving averages of the weights (EMA), kept in the same way by every strategy.

With each update of a weight, `average = decay * average + (1 - decay) * weight`: the formula of
tf.train.ExponentialMovingAverage. That class would create its variables in the first step, after a checkpoint was read,
and the `use_ema` of Keras' optimizers loses updates when several workers of a parameter server apply them.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.models.architectures.build import build as build_model
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import Precision


def build_plain(spec: TrainingSpec, precision: Precision) -> tf.keras.Model:
    """A model with random weights. They are float32 whatever the precision of its computations is."""
    tf.keras.mixed_precision.set_global_policy(precision.value)  # Keras 3 does not accept an enum
    return build_model(spec)


def load_weights(model: tf.keras.Model, prefix: str) -> None:
    """Read the model's weights from the checkpoint with this path, without the ending; optimizers are ignored.

    If it has moving averages of the trainable weights, they are read instead.

    TensorFlow joins the shards of partitioned variables, and saves one value for a variable with several replicas.

    Raises:
        tf.errors.OpError: it cannot be read, or is damaged.
        AssertionError, ValueError: it is a checkpoint of another model.
    """
    status = tf.train.Checkpoint(model=model).read(prefix)
    status.assert_existing_objects_matched().expect_partial()
    if averages := saved(prefix):
        assign(model.trainable_variables, averages)


def load_converted(model: tf.keras.Model, prefix: str) -> None:
    """`load_weights` into a model of Keras 3 from a checkpoint of tf_keras.

    tf_keras numbers the layers with weights, and calls the kernel of a depthwise convolution `depthwise_kernel`.
    """
    reader = tf.train.load_checkpoint(prefix)
    for number, layer in enumerate(layer for layer in model.layers if layer.weights):
        for weight in layer.weights:
            names = (f"model/layer_with_weights-{number}/{kind}{weight.name}" for kind in ("", "depthwise_"))
            keys = (f"{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in names)
            weight.assign(reader.get_tensor(next(filter(reader.has_tensor, keys))))
    if averages := saved(prefix):
        assign(model.trainable_variables, averages)


@dataclass(frozen=True)
class MovingAverages:
    """The averages of a model's trainable weights.

    BatchNorm's statistics are moving averages already. Averaged once more they lag so far behind that they fit neither
    the weights nor their averages: MobileNetV2 then classified 18 % of digits, not 86 % (300 steps, decay 0.98).
    """

    decay: float
    weights: Sequence[Any]
    """TensorFlow's variables; of a partitioned one each shard."""
    averages: Sequence[Any]
    """Each on the devices of its weight."""

    def update(self) -> None:
        """Move all averages once. Call it in a replica's step, after the weights were updated.

        Nothing is exchanged: each device, or parameter server, moves its own averages.
        """
        tf.distribute.get_replica_context().merge_call(self._update_all)

    def _update_all(self, strategy: tf.distribute.Strategy) -> None:
        for average, weight in zip(self.averages, self.weights, strict=True):
            strategy.extended.update(average, self._move, args=(weight,), group=False)

    def _move(self, average: Any, weight: Any) -> Any:
        return average.assign_sub((average - weight) * (1.0 - self.decay), read_value=False)

    def evaluated(self, model: tf.keras.Model) -> list[Any]:
        """The NumPy arrays of `model.get_weights()`, with the averages in place of the weights that they follow."""
        pairs = zip(model.trainable_variables, self.averages, strict=True)
        averages = {id(weight): average for weight, average in pairs}
        values = zip(model.weights, model.get_weights(), strict=True)
        return [averages[id(weight)].numpy() if id(weight) in averages else value for weight, value in values]

    def restore(self, prefix: str) -> None:
        """Assign the averages of the checkpoint with this path, which may be divided into other shards.

        Raises:
            tf.errors.OpError: it cannot be read.
            ValueError: it has those of another model, or none.
        """
        assign(self.averages, saved(prefix))


def _tensorflow_variable(variable: Any) -> Any:
    """The variable; of one of Keras 3, its value, which is TensorFlow's variable (whose `value` is a method)."""
    value = getattr(variable, "value", None)
    return variable if value is None or callable(value) else value


def create(decay: float | None, model: tf.keras.Model) -> MovingAverages | None:
    """The averages of a new model, in the current strategy scope. They start as its weights. None without a decay."""
    if decay is None:
        return None
    weights = [_tensorflow_variable(weight) for weight in model.trainable_variables]
    return MovingAverages(decay, weights, [_beside(weight) for weight in weights])


def _beside(weight: Any) -> Any:
    """A variable on the devices of `weight`, as Keras' optimizers create theirs: a shard is not divided again."""
    with tf.distribute.get_strategy().extended.colocate_vars_with(weight):
        return tf.Variable(weight.read_value(), trainable=False, name="moving_average")


def after_each_step(model: tf.keras.Model, act: Callable[[], None]) -> None:
    """Let `fit` call `act` at the end of each of its steps, in the replica's context."""
    train_step = model.train_step

    def step(*arguments: Any) -> Any:
        logs = train_step(*arguments)
        act()
        return logs

    model.train_step = step


def saved(prefix: str) -> list[Any]:
    """The averages in the checkpoint with this path, each whole or as its shards; none if it was saved without.

    Raises:
        tf.errors.OpError: it cannot be read.
    """
    reader = tf.train.load_checkpoint(prefix)
    names = reader.get_variable_to_shape_map()
    values: list[Any] = []
    while (name := f"averages/{len(values)}/.ATTRIBUTES/VARIABLE_VALUE") in names:
        values.append(reader.get_tensor(name))
    return values


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Assign NumPy arrays to variables that are the same ones in other shards.

    Raises:
        ValueError: they have another number of elements.
    """
    for variable, value in zip(variables, cut(values, variables), strict=True):
        variable.assign(value)


def cut(values: Iterable[Any], like: Sequence[Any]) -> list[Any]:
    """The same numbers as arrays with the shapes of these. Variables are divided along their first axis only.

    get_weights() returns the shards of variables that a partitioner of ParameterServerStrategy has divided.

    Raises:
        ValueError: there are more or fewer numbers.
    """
    numbers = np.concatenate([np.ravel(value) for value in values] or [np.zeros(0)])
    shapes = [tuple(each.shape) for each in like]
    edges = list(accumulate(map(math.prod, shapes), initial=0))
    if len(numbers) != edges[-1]:
        raise ValueError(f"{len(numbers)} numbers, not {edges[-1]}")
    return [numbers[slice(*edge)].reshape(shape) for edge, shape in zip(pairwise(edges), shapes, strict=True)]
