"""A program whose gradients overflow in a float16 exchange, on one replica only; prints what each replica did."""

import json
import os
from typing import Any

import tensorflow as tf

from tfdist.launch.events import wait_at_barrier
from tfdist.models.spec import Optimizer, TrainingSpec
from tfdist.models.training import optimizers
from tfdist.strategies import current
from tfdist.strategies.options import GradientDtype, Precision

SPEC = TrainingSpec(
    optimizer=Optimizer.SGD,
    learning_rate=1.0,
    precision=Precision.MIXED_FLOAT16,
    gradient_dtype=GradientDtype.FLOAT16,
    bytes_per_pack=1,
)
TOO_LARGE = 1e5
"""Finite in float32, infinite in float16."""


class TwoWeights(tf.keras.Model):
    """A model of two weights that start at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.both = [self.add_weight(name, shape=(), initializer="zeros", dtype="float32") for name in "ab"]


def main() -> None:
    strategy = current()
    with strategy.scope():
        model = TwoWeights()
        optimizer = optimizers.build(SPEC, model)

    @tf.function
    def step(last: tf.Tensor) -> None:
        """Replica 0 has the gradient 1, replica 1 the gradient `last`."""

        def replica_step(last: tf.Tensor) -> None:
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            gradient = tf.where(tf.equal(replica, 1), last, 1.0)
            scaled = optimizers.scale(optimizer, gradient)
            unscaled = optimizers.unscale(optimizer, [scaled, scaled])
            optimizer.apply_gradients(zip(unscaled, model.both, strict=True))

        strategy.run(replica_step, (last,))

    def state() -> list[dict[str, Any]]:
        """The weight of each replica of this process, and the optimizer's state."""
        values = strategy.experimental_local_results(model.both[1])
        scale, iterations = float(optimizer.loss_scale), optimizers.updates(optimizer)
        return [{"weight": float(value), "scale": scale, "iterations": iterations} for value in values]

    operations = step.get_concrete_function(tf.constant(2.0)).graph.get_operations()
    exchanged = [each.get_attr("T").name for each in operations if each.type.startswith("CollectiveReduce")]
    step(tf.constant(2.0))
    finite = state()
    step(tf.constant(TOO_LARGE))
    replicas = [{"finite": first, "overflow": second} for first, second in zip(finite, state(), strict=True)]
    print("replicas", json.dumps({"exchanged": exchanged, "replicas": replicas}), flush=True)


if __name__ == "__main__":
    main()
    wait_at_barrier()  # the other worker may still be in its last exchange
    os._exit(0)
