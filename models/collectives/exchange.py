"""The ranks of one task: they run an operation in step with those of other tasks, time it, and check the results."""

import time
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfdist.models.collectives.cases import SizeCase, iterations_for
from tfdist.models.collectives.operations import Sample, Values, sample_of
from tfdist.models.collectives.spec import CollectiveSpec
from tfdist.models.collectives.values import own_values, wrong_elements
from tfdist.models.training.sync import wait_for_devices

_ESTIMATE_S = 0.05
"""Seconds of the runs that estimate the time of an operation; a longer operation is run once."""
_TRACING_S = 2.0
"""A first run that takes longer than this estimates the time, though TensorFlow has traced the operation in it."""


@dataclass(frozen=True)
class Measurement:
    """What a task reports about one case in one turn."""

    bytes: int
    tensors: int
    pack_bytes: int
    iterations: int
    seconds: float
    """Seconds of all iterations together, on this task."""
    wrong: int
    """Elements with a wrong value in the last results, of the ranks of this task."""


@dataclass
class TaskRanks:
    """Every task calls the same methods with the same cases, in the same order."""

    spec: CollectiveSpec
    strategy: tf.distribute.Strategy
    samples: dict[SizeCase, Sample] = field(default_factory=dict)
    """Samples of one shape each: TensorFlow identifies a collective by its place in the graph."""
    operation_s: dict[SizeCase, float] = field(default_factory=dict)
    """Seconds of one operation when it was measured last, equal on all tasks."""

    def __post_init__(self) -> None:
        @tf.function
        def broadcast_first(number: tf.Tensor) -> Any:
            def of_first(number: tf.Tensor) -> tf.Tensor:
                context = tf.distribute.get_replica_context()
                own = tf.where(tf.equal(context.replica_id_in_sync_group, 0), number, 0.0)
                return context.all_reduce(tf.distribute.ReduceOp.SUM, own)

            return self.strategy.run(of_first, (number,))

        self._broadcast_first = broadcast_first

    def open(self, case: SizeCase) -> None:
        """Trace the operation and estimate its time."""
        self.samples[case] = sample_of(self.strategy, self.spec, case.pack_bytes, 1 + len(self.samples))
        values = self._values(case)
        seconds = self._agreed(self._run(case, values, 1)[0])
        if seconds < _TRACING_S:
            seconds = self._agreed(self._run(case, values, 1)[0])
        if seconds < _ESTIMATE_S:
            iterations = iterations_for(_ESTIMATE_S, seconds)
            seconds = self._agreed(self._run(case, values, iterations)[0] / iterations)
        self.operation_s[case] = seconds

    def measure(self, case: SizeCase, seconds: float) -> Measurement:
        """Run the operation for about `seconds`, but once at least, and check what it has computed."""
        values, expected_s = self._values(case), self.operation_s[case]
        iterations = iterations_for(seconds, expected_s)
        if expected_s < seconds:
            self._run(case, values, 1)  # all ranks leave it together, with warm caches
        else:
            self._agreed(expected_s)  # they leave this together too
        elapsed, results = self._run(case, values, iterations)
        self.operation_s[case] = self._agreed(elapsed / iterations)
        wrong = self.count_wrong(case, results)
        return Measurement(case.bytes, len(case.elements), case.pack_bytes, iterations, elapsed, wrong)

    def count_wrong(self, case: SizeCase, results: Values) -> int:
        """The wrong elements in the results of this task's ranks."""
        ranks = self.strategy.num_replicas_in_sync
        return sum(
            wrong_elements(self.spec.op, local.numpy(), elements, ranks, tensor)
            for tensor, (elements, result) in enumerate(zip(case.elements, results, strict=True))
            for local in self.strategy.experimental_local_results(result)
        )

    def _run(self, case: SizeCase, values: Values, iterations: int) -> tuple[float, Values]:
        started = time.perf_counter()
        results = self.samples[case](values, iterations)
        wait_for_devices(self.strategy)
        return time.perf_counter() - started, results

    def _values(self, case: SizeCase) -> Values:
        """What the ranks of this task contribute, each on its device."""
        return [self._value(tensor, elements) for tensor, elements in enumerate(case.elements)]

    def _value(self, tensor: int, elements: int) -> Any:
        devices, dtype = self.strategy.extended.worker_devices, tf.as_dtype(self.spec.gradient_dtype.value)

        def of(context: Any) -> tf.Tensor:
            rank = context.replica_id_in_sync_group
            with tf.device(devices[rank % len(devices)]):
                own = own_values(elements, rank, context.num_replicas_in_sync, tensor, dtype.as_numpy_dtype)
                return tf.constant(own)

        return self.strategy.experimental_distribute_values_from_function(of)

    def _agreed(self, number: float) -> float:
        """The number of the first task, on every task: it decides how many operations all of them run."""
        if self.spec.workers == 1:
            return number
        results = self.strategy.experimental_local_results(self._broadcast_first(tf.constant(number, tf.float32)))
        return float(results[0])
