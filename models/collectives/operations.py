"""The operations as tf.distribute runs them: what is measured is what a training step uses."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfdist.models.collectives.op import CollectiveOp

Values = list[Any]
"""Tensors, each with a value per replica."""
Operation = Callable[[Values], Values]
"""Runs inside a tf.function, in cross-replica context."""
Sample = Callable[[Values, int], Values]
"""Runs the operation a number of times, each after the one before; returns the results of the last one."""


def sample_of(strategy: tf.distribute.Strategy, op: CollectiveOp, pack_bytes: int) -> Sample:
    """A sample of `op` in one call of a tf.function, so that Python takes no part of its time."""
    operation = _OPERATIONS[op](strategy, pack_bytes)

    @tf.function
    def sample(values: Values, iterations: tf.Tensor) -> Values:
        results = operation(values)
        for _ in tf.range(iterations - 1):
            results = operation(strategy.run(_after, (values, results)))
        return results

    return lambda values, iterations: sample(values, tf.constant(iterations))


def _after(values: Values, results: Values) -> Values:
    """The values, once the results are there."""
    with tf.control_dependencies(results):
        return [tf.identity(value) for value in values]


def _all_reduce(strategy: tf.distribute.Strategy, pack_bytes: int) -> Operation:
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=pack_bytes)

    def reduce(values: Values) -> Any:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values, options=options)

    return lambda values: strategy.run(reduce, (values,))


def _all_gather(strategy: tf.distribute.Strategy, pack_bytes: int) -> Operation:
    def gather(values: Values) -> Values:
        return [tf.distribute.get_replica_context().all_gather(value, axis=0) for value in values]

    return lambda values: strategy.run(gather, (values,))


def _broadcast(strategy: tf.distribute.Strategy, pack_bytes: int) -> Operation:
    """Copies from the first device: TensorFlow has no other implementation, whatever the cross-device ops are."""
    copies = tf.distribute.ReductionToOneDevice()

    def broadcast(values: Values) -> Values:
        roots = [strategy.experimental_local_results(value)[0] for value in values]
        return [copies.broadcast(root, destinations=value) for root, value in zip(roots, values, strict=True)]

    return broadcast


def _reduce(strategy: tf.distribute.Strategy, pack_bytes: int) -> Operation:
    def reduce(values: Values) -> Values:
        first = strategy.extended.worker_devices[0]
        return [strategy.extended.reduce_to(tf.distribute.ReduceOp.SUM, value, destinations=first) for value in values]

    return reduce


_OPERATIONS: Mapping[CollectiveOp, Callable[[tf.distribute.Strategy, int], Operation]] = {
    CollectiveOp.ALL_REDUCE: _all_reduce,
    CollectiveOp.ALL_GATHER: _all_gather,
    CollectiveOp.BROADCAST: _broadcast,
    CollectiveOp.REDUCE: _reduce,
}
