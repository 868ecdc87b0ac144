"""The ranks of one task: they run an operation in step with those of other tasks, time it, and check the results.

The operations are those of tf.distribute: what is measured is what a training step uses.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfdist.launch.cluster import Task
from tfdist.models.collectives.spec import CollectiveOp, CollectiveSpec, SizeCase, iterations_for
from tfdist.models.record import CollectiveCase
from tfdist.models.training.agreement import make_sum
from tfdist.strategies.devices import wait_for_devices

Array = NDArray[Any]

_EXACT = 256
"""The largest sum: bfloat16 represents all integers up to it exactly, so every order of summation has one result."""
_CHUNK = 1 << 20
"""Elements that are compared at a time: a result may take a large part of the memory."""


def period(ranks: int) -> int:
    """The number of distinct values: each rank's elements count 0, 1, ... period - 1 again and again."""
    return max(2, min(8, 1 + _EXACT // ranks))


def own_values(elements: int, rank: int, ranks: int, tensor: int, dtype: type[np.generic]) -> Array:
    """What a rank contributes; `tensor` is its index in the list of tensors that are exchanged together."""
    size = period(ranks)
    values = ((np.arange(size) + 3 * rank + tensor) % size).astype(dtype)
    return np.tile(values, -(-elements // size))[:elements]  # 100 times as fast as numpy.resize


def wrong_elements(op: CollectiveOp, result: Array, elements: int, ranks: int, tensor: int) -> int:
    """The number of elements of one rank's result that differ from the right ones; all of them if its length does.

    Args:
        op: that gave the result.
        result: one-dimensional; of reduce-to-one, that of the destination.
        elements: that each rank contributed.
        ranks: that took part.
        tensor: as for `own_values`.
    """
    gathers = op is CollectiveOp.ALL_GATHER
    expected = elements * (ranks if gathers else 1)
    if len(result) != expected:
        return expected
    own = [own_values(period(ranks), rank, ranks, tensor, np.int64) for rank in range(ranks)]
    if gathers:
        return sum(map(_differing, np.split(result, ranks), own))
    return _differing(result, np.sum(own, axis=0) if op.reduces else own[0])


def _differing(result: Array, repeated: Array) -> int:
    chunk = len(repeated) * (_CHUNK // len(repeated))
    expected = np.tile(repeated.astype(result.dtype), chunk // len(repeated))[: len(result)]
    parts = (result[start : start + chunk] for start in range(0, len(result), chunk))
    return sum(int(np.count_nonzero(part != expected[: len(part)])) for part in parts)


Values = list[Any]
"""Tensors, each with a value per replica."""
Operation = Callable[[Values], Values]
"""Runs inside a tf.function, in cross-replica context."""
Sample = Callable[[Values, int], Values]
"""Runs the operation a number of times, each after the one before; returns the results of the last one."""


def _sample_of(ranks: "TaskRanks", case: SizeCase) -> Sample:
    """A sample of the operation in one call of a tf.function, so that Python takes no part of its time."""
    operation = _OPERATIONS[ranks.spec.op](ranks, case)
    strategy = ranks.strategy

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


def _all_reduce(ranks: "TaskRanks", case: SizeCase) -> Operation:
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=case.pack_bytes)

    def reduce(values: Values) -> Any:
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, _on_device(values), options=options)

    return lambda values: ranks.strategy.run(reduce, (values,))


def _all_gather(ranks: "TaskRanks", case: SizeCase) -> Operation:
    def gather(values: Values) -> Values:
        return [tf.distribute.get_replica_context().all_gather(value, axis=0) for value in _on_device(values)]

    return lambda values: ranks.strategy.run(gather, (values,))


def _broadcast(ranks: "TaskRanks", case: SizeCase) -> Operation:
    """The operations with which MultiWorkerMirroredStrategy sends the initial values of variables between processes.

    The devices of one process copy from the first one: TensorFlow has no other implementation, whatever the
    cross-device ops are.
    """
    strategy = ranks.strategy
    copies = tf.distribute.ReductionToOneDevice()
    group = {
        "group_size": strategy.num_replicas_in_sync,
        "group_key": 1 << 20,  # TensorFlow counts its own up from 1
        "instance_key": 1 + len(ranks.samples),  # equal on all tasks
        "communication_hint": str(ranks.spec.communication),
    }

    def from_first(value: tf.Tensor) -> tf.Tensor:
        context = tf.distribute.get_replica_context()
        if tf.get_static_value(context.replica_id_in_sync_group) == 0:
            return tf.raw_ops.CollectiveBcastSendV2(input=value, **group)
        return tf.raw_ops.CollectiveBcastRecvV2(T=value.dtype, shape=tf.shape(value), **group)

    def copied(value: Any) -> Any:
        return copies.broadcast(strategy.experimental_local_results(value)[0], destinations=value)

    if ranks.spec.workers > 1:
        return lambda values: strategy.run(lambda own: [from_first(value) for value in own], (values,))
    return lambda values: [copied(value) for value in values]


def _reduce(ranks: "TaskRanks", case: SizeCase) -> Operation:
    extended = ranks.strategy.extended

    def reduce(values: Values) -> Values:
        first = extended.worker_devices[0]
        return [extended.reduce_to(tf.distribute.ReduceOp.SUM, value, destinations=first) for value in values]

    return reduce


_OPERATIONS: Mapping[CollectiveOp, Callable[["TaskRanks", SizeCase], Operation]] = {
    CollectiveOp.ALL_REDUCE: _all_reduce,
    CollectiveOp.ALL_GATHER: _all_gather,
    CollectiveOp.BROADCAST: _broadcast,
    CollectiveOp.REDUCE: _reduce,
}


_ESTIMATE_S = 0.05
"""Seconds of the runs that estimate the time of an operation; a longer operation is run once."""
_TRACING_S = 2.0
"""A first run that takes longer than this estimates the time, though TensorFlow has traced the operation in it."""


@dataclass
class TaskRanks:
    """Every task calls the same methods with the same cases, in the same order."""

    spec: CollectiveSpec
    strategy: tf.distribute.Strategy
    """Its replicas are the ranks."""
    task: Task
    samples: dict[SizeCase, Sample] = field(default_factory=dict)
    """Samples of one shape each: TensorFlow identifies a collective by its place in the graph."""
    operation_s: dict[SizeCase, float] = field(default_factory=dict)
    """Seconds of one operation when it was measured last, equal on all tasks."""

    def __post_init__(self) -> None:
        self._sum = make_sum(self.strategy, self.spec.workers)

    def open(self, case: SizeCase) -> None:
        """Trace the operation and estimate its time."""
        self.samples[case] = _sample_of(self, case)
        values = self._values(case)
        seconds = self._agreed(self._run(case, values, 1)[0])
        if seconds < _TRACING_S:
            seconds = self._agreed(self._run(case, values, 1)[0])
        if seconds < _ESTIMATE_S:
            iterations = iterations_for(_ESTIMATE_S, seconds)
            seconds = self._agreed(self._run(case, values, iterations)[0] / iterations)
        self.operation_s[case] = seconds

    def measure(self, case: SizeCase, seconds: float) -> CollectiveCase:
        """Run the operation for about `seconds`, but once at least, and check what it has computed."""
        values = self._values(case)
        expected_s = self.operation_s[case]
        iterations = iterations_for(seconds, expected_s)
        if expected_s < seconds:
            self._run(case, values, 1)  # all ranks leave it together, with warm caches
        else:
            self._agreed(expected_s)  # they leave this together too
        elapsed, results = self._run(case, values, iterations)
        self.operation_s[case] = self._agreed(elapsed / iterations)
        return {
            "bytes": case.bytes,
            "tensors": len(case.elements),
            "pack_bytes": case.pack_bytes,
            "iterations": iterations,
            "seconds": elapsed,
            "wrong": sum(
                wrong_elements(self.spec.op, local.numpy(), elements, self.strategy.num_replicas_in_sync, tensor)
                for tensor, (elements, result) in enumerate(zip(case.elements, results, strict=True))
                for local in self.strategy.experimental_local_results(result)
            ),
        }

    def _run(self, case: SizeCase, values: Values, iterations: int) -> tuple[float, Values]:
        started = time.perf_counter()
        results = self.samples[case](values, iterations)
        wait_for_devices(self.strategy)
        return time.perf_counter() - started, results

    def _values(self, case: SizeCase) -> Values:
        """What the ranks of this task contribute, each on its device."""
        devices = self.strategy.extended.worker_devices
        dtype = tf.as_dtype(self.spec.gradient_dtype.value)

        def value(tensor: int, elements: int, context: Any) -> tf.Tensor:
            rank = context.replica_id_in_sync_group
            with tf.device(devices[rank % len(devices)]):
                own = own_values(elements, rank, context.num_replicas_in_sync, tensor, dtype.as_numpy_dtype)
                return tf.constant(own)

        distribute = self.strategy.experimental_distribute_values_from_function
        return [distribute(partial(value, tensor, elements)) for tensor, elements in enumerate(case.elements)]

    def _agreed(self, number: float) -> float:
        """The number of the first task, on every task: it decides how many operations all of them run."""
        return self._sum([number if self.task.index == 0 else 0.0])[0]
