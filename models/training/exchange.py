"""The all-reduce of gradients with options, in place of that of tf_keras' optimizers."""

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import GradientDtype, Keras

GradientsAndVariables = list[tuple[tf.Tensor, tf.Variable]]
Aggregator = Callable[[Iterable[tuple[tf.Tensor, tf.Variable]]], GradientsAndVariables]


def aggregator(spec: TrainingSpec) -> Aggregator | None:
    """The `gradient_aggregator` of tf_keras' optimizers; None: the optimizer's own all-reduce is the same.

    It sums each gradient over the replicas in `spec.gradient_dtype`, in packs of `spec.bytes_per_pack` bytes, and
    returns the sums in the gradients' type. A LossScaleOptimizer calls it before it checks that gradients are finite,
    so all replicas check the same sums, and skip the same steps.
    """
    if spec.keras is not Keras.TWO or (spec.gradient_dtype is GradientDtype.FLOAT32 and spec.bytes_per_pack is None):
        return None
    dtype = tf.as_dtype(spec.gradient_dtype.value)
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=spec.bytes_per_pack or 0)

    def aggregate(pairs: Iterable[tuple[tf.Tensor, tf.Variable]]) -> GradientsAndVariables:
        gradients, variables = zip(*pairs, strict=True)
        sums: Any = tf.distribute.get_replica_context().all_reduce(
            tf.distribute.ReduceOp.SUM, [tf.cast(gradient, dtype) for gradient in gradients], options=options
        )
        applied = [tf.cast(total, gradient.dtype) for total, gradient in zip(sums, gradients, strict=True)]
        return list(zip(applied, variables, strict=True))

    return aggregate
