"""The operations as tf.distribute runs them: what is measured is what a training step uses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.models.collectives.op import CollectiveOp
from tfdist.models.collectives.spec import CollectiveSpec

_BROADCAST_GROUP = 1 << 20
"""TensorFlow counts its own group keys up from 1."""

Values = list[Any]
"""Tensors, each with a value per replica."""
Operation = Callable[[Values], Values]
"""Runs inside a tf.function, in cross-replica context."""
Sample = Callable[[Values, int], Values]
"""Runs the operation a number of times, each after the one before; returns the results of the last one."""


def sample_of(strategy: tf.distribute.Strategy, spec: CollectiveSpec, pack_bytes: int, number: int) -> Sample:
    """A sample of the operation in one call of a tf.function, so that Python takes no part of its time.

    Args:
        strategy: whose replicas are the ranks.
        spec: names the operation.
        pack_bytes: as in `Case`.
        number: of the sample, equal on all tasks, from 1.
    """
    operation = _OPERATIONS[spec.op](_Call(strategy, spec, pack_bytes, number))

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


def _on_device(values: Values) -> Values:
    """The values on the device of the replica: arguments of a tf.function have none, which a reduction requires."""
    return [tf.identity(value) for value in values]


@dataclass(frozen=True)
class _Call:
    """The arguments of `sample_of`."""

    strategy: tf.distribute.Strategy
    spec: CollectiveSpec
    pack_bytes: int
    number: int


def _all_reduce(call: _Call) -> Operation:
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=call.pack_bytes)

    def reduce(values: Values) -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, _on_device(values), options=options)

    return lambda values: call.strategy.run(reduce, (values,))


def _all_gather(call: _Call) -> Operation:
    def gather(values: Values) -> Values:
        return [tf.distribute.get_replica_context().all_gather(value, axis=0) for value in _on_device(values)]

    return lambda values: call.strategy.run(gather, (values,))


def _broadcast(call: _Call) -> Operation:
    return _broadcast_between_processes(call) if call.spec.workers > 1 else _broadcast_between_devices(call)


def _broadcast_between_devices(call: _Call) -> Operation:
    """Copies from the first device: TensorFlow has no other implementation, whatever the cross-device ops are."""
    copies = tf.distribute.ReductionToOneDevice()

    def broadcast(values: Values) -> Values:
        roots = [call.strategy.experimental_local_results(value)[0] for value in values]
        return [copies.broadcast(root, destinations=value) for root, value in zip(roots, values, strict=True)]

    return broadcast


def _broadcast_between_processes(call: _Call) -> Operation:
    """The operations with which MultiWorkerMirroredStrategy sends the initial values of variables."""
    group = {
        "group_size": call.strategy.num_replicas_in_sync,
        "group_key": _BROADCAST_GROUP,
        "instance_key": call.number,
        "communication_hint": str(call.spec.communication),
    }

    def from_first(value: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        if tf.get_static_value(context.replica_id_in_sync_group) == 0:
            return tf.raw_ops.CollectiveBcastSendV2(input=value, **group)
        return tf.raw_ops.CollectiveBcastRecvV2(T=value.dtype, shape=tf.shape(value), **group)

    return lambda values: call.strategy.run(lambda own: [from_first(value) for value in own], (values,))


def _reduce(call: _Call) -> Operation:
    extended = call.strategy.extended

    def reduce(values: Values) -> Values:
        first = extended.worker_devices[0]
        return [extended.reduce_to(tf.distribute.ReduceOp.SUM, value, destinations=first) for value in values]

    return reduce


_OPERATIONS: Mapping[CollectiveOp, Callable[[_Call], Operation]] = {
    CollectiveOp.ALL_REDUCE: _all_reduce,
    CollectiveOp.ALL_GATHER: _all_gather,
    CollectiveOp.BROADCAST: _broadcast,
    CollectiveOp.REDUCE: _reduce,
}
