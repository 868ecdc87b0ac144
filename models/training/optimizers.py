"""The optimizers, by name, and the loss scaling that float16 needs, for both Keras."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfdist.launch.errors import TfdistError
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import Keras


def _legacy(name: str) -> Callable[[float], Any]:
    # Of the two Adams of tf_keras this one starts faster: two workers had done a step after 26-27 s, not after 30-32 s,
    # with 5 % less memory (MobileNetV2, 96 px, two runs each). Their images per second could not be told apart.
    return lambda rate: getattr(tf.keras.optimizers.legacy, name)(rate)


OPTIMIZERS: Mapping[Keras, Mapping[str, Callable[[float], Any]]] = {
    Keras.TWO: {"adam": _legacy("Adam"), "sgd": _legacy("SGD")},
    Keras.THREE: {
        "adam": lambda rate: tf.keras.optimizers.Adam(rate),
        "sgd": lambda rate: tf.keras.optimizers.SGD(rate),
    },
}


def build(spec: TrainingSpec, model: tf.keras.Model) -> Any:
    """The optimizer of `spec` for `model`, under whatever scope surrounds it; under mixed_float16 it scales the loss.

    Raises:
        TfdistError: the spec names an optimizer that is not there.
    """
    table = OPTIMIZERS[spec.keras]
    if spec.optimizer not in table:
        raise TfdistError(f"--optimizer {spec.optimizer!r} is unknown: use {' or '.join(table)}")
    optimizer = table[spec.optimizer](spec.learning_rate)
    if spec.precision == "mixed_float16":
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
    _make_variables(optimizer, model)
    return optimizer


def _make_variables(optimizer: Any, model: tf.keras.Model) -> None:
    """Make the optimizer's variables now and not in the first step.

    There Keras 3 would make them inside a replica, which MirroredStrategy forbids. And a tf.function whose first trace
    made a variable is traced once more: for two replicas of MobileNetV2 that is 6.5 s of 10.5 s
    (https://www.tensorflow.org/guide/function#creating_tfvariables).
    """
    make = getattr(optimizer, "build", None) or optimizer._create_all_weights  # the legacy ones have no public way
    make(model.trainable_variables)


def scale(optimizer: Any, loss: tf.Tensor) -> tf.Tensor:
    """What to differentiate instead of `loss`, so that small gradients survive float16; else `loss` itself."""
    if hasattr(optimizer, "get_scaled_loss"):
        return optimizer.get_scaled_loss(loss)
    if hasattr(optimizer, "scale_loss"):
        return optimizer.scale_loss(loss)
    return loss


def unscale(optimizer: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """The gradients of the loss from those of the scaled one. Keras 3 does this in `apply_gradients` itself."""
    if hasattr(optimizer, "get_unscaled_gradients"):
        unscaled: list[tf.Tensor] = optimizer.get_unscaled_gradients(gradients)
        return unscaled
    return gradients


def updates(optimizer: Any) -> int:
    """How many updates it has applied, wherever its counter lives."""
    return int(tf.convert_to_tensor(optimizer.iterations))
