"""A program that applies known gradients, 1, 10, 100, ..., to variables that start at 0, and prints their sums."""

import json
import os
import sys
from collections.abc import Callable

import tensorflow as tf

from tfdist.strategies import current

SIZES = (1, 2, 3, 5, 8, 13)
"""More variables than devices, because HierarchicalCopyAllReduce sums each one on another device."""
ApplyGradient = Callable[[tf.Tensor], None]


def synchronous(strategy: tf.distribute.Strategy, apply: ApplyGradient) -> None:
    """Replica r applies the gradient 10 ** r, all of them in one step."""

    def replica_step() -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        apply(10.0 ** tf.cast(replica, tf.float32))

    tf.function(lambda: strategy.run(replica_step))()


def asynchronous(strategy: tf.distribute.Strategy, apply: ApplyGradient, updates: int) -> None:
    """Step n, on any worker, applies the gradient 10 ** n."""
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
    step = tf.function(lambda gradient: strategy.run(apply, (gradient,)))
    for n in range(updates):
        coordinator.schedule(step, (tf.constant(10.0**n),))
    coordinator.join()


def main() -> None:
    strategy = current()
    with strategy.scope():
        variables = [tf.Variable(tf.zeros(size)) for size in SIZES]
        optimizer = tf.keras.optimizers.legacy.SGD(1.0)

    def apply(gradient: tf.Tensor) -> None:
        optimizer.apply_gradients([(tf.fill(variable.shape, gradient), variable) for variable in variables])

    if isinstance(strategy, tf.distribute.experimental.ParameterServerStrategy):
        asynchronous(strategy, apply, int(sys.argv[1]))
    else:
        synchronous(strategy, apply)
    sums = {float(-value) for variable in variables for value in variable.numpy()}
    print("sums", json.dumps(sorted(sums)), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)
