"""The optimizers, their all-reduce of gradients, and the loss scaling of float16, for both versions of Keras."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdist.models.spec import Optimizer, TrainingSpec
from tfdist.strategies.options import GradientDtype, Keras, Precision

GradientsAndVariables = list[tuple[tf.Tensor, tf.Variable]]


def aggregator(spec: TrainingSpec) -> Callable[[GradientsAndVariables], GradientsAndVariables] | None:
    """The `gradient_aggregator` of tf_keras' optimizers; None: the optimizer's own all-reduce is the same.

    It sums each gradient over the replicas in `spec.gradient_dtype`, in packs of `spec.bytes_per_pack` bytes, and
    returns the sums in the gradients' type. A LossScaleOptimizer calls it before it checks that gradients are finite,
    so all replicas check the same sums, and skip the same steps.
    """
    if spec.keras is not Keras.TWO or (spec.gradient_dtype is GradientDtype.FLOAT32 and spec.bytes_per_pack is None):
        return None
    dtype = tf.as_dtype(spec.gradient_dtype.value)
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=spec.bytes_per_pack or 0)

    def aggregate(pairs: GradientsAndVariables) -> GradientsAndVariables:
        gradients, variables = zip(*pairs, strict=True)
        sums: Any = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, [tf.cast(gradient, dtype) for gradient in gradients], options=options
        )
        applied = [tf.cast(total, gradient.dtype) for total, gradient in zip(sums, gradients, strict=True)]
        return list(zip(applied, variables, strict=True))

    return aggregate


_CLASSES = {Optimizer.ADAM: "Adam", Optimizer.SGD: "SGD"}


def build(spec: TrainingSpec, model: tf.keras.Model) -> Any:
    """The optimizer of `spec` for `model`, in the current strategy scope; under mixed_float16 it scales the loss."""
    # tf_keras has two Adams. The legacy one starts faster: two workers finished a step after 26-27 s, not 30-32 s, with
    # 5 % less memory (MobileNetV2, 96 px, two runs each). Their throughput does not differ measurably.
    optimizers = tf.keras.optimizers.legacy if spec.keras is Keras.TWO else tf.keras.optimizers
    summing = aggregator(spec)
    options = {} if summing is None else {"gradient_aggregator": summing}
    optimizer = getattr(optimizers, _CLASSES[spec.optimizer])(spec.learning_rate, **options)
    if spec.precision is Precision.MIXED_FLOAT16:
        optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)
    # Its variables are created before the first step: Keras 3 would create them inside a replica, which
    # MirroredStrategy forbids. And a tf.function whose first trace creates a variable is traced twice: for two replicas
    # of MobileNetV2 that is 6.5 s of 10.5 s (https://www.tensorflow.org/guide/function#creating_tfvariables).
    create = getattr(optimizer, "build", None) or optimizer._create_all_weights  # the legacy ones have no public method
    create(model.trainable_variables)
    return optimizer


def scale(optimizer: Any, loss: tf.Tensor) -> tf.Tensor:
    """The loss to differentiate: scaled up under mixed_float16, so that small gradients do not underflow."""
    scaled = getattr(optimizer, "get_scaled_loss", None) or getattr(optimizer, "scale_loss", None)
    return loss if scaled is None else scaled(loss)


def unscale(optimizer: Any, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """The gradients of the loss from those of the scaled loss. Keras 3 unscales in `apply_gradients` itself."""
    if hasattr(optimizer, "get_unscaled_gradients"):
        return list(optimizer.get_unscaled_gradients(gradients))
    return gradients


def updates(optimizer: Any) -> int:
    """The number of applied updates."""
    return int(tf.convert_to_tensor(optimizer.iterations))
