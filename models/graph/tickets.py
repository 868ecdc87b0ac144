"""Which steps the chief lets the workers of between-graph take, and their results: queues on a parameter server.

A worker takes a ticket for each step. So workers wait without using the processor, and take exactly as many steps as
the chief wants. Workers that step together take theirs after SyncReplicasOptimizer has let them pass: before, one of
them could take two for the same step, and another one none.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfdist.models.graph.placement import holders, untracked
from tfdist.models.spec import TrainingSpec


class Results(NamedTuple):
    """Steps of workers, in the order in which they ended: an array each."""

    worker: np.ndarray
    """Index of the worker."""
    read: np.ndarray
    """The number of updates when it read the variables."""
    applied: np.ndarray
    """The number of updates when its own one was applied; of workers that step together 0."""
    loss: np.ndarray
    """Mean over its batch."""


@dataclass(frozen=True)
class Tickets:
    """Two queues, and for each worker the number of tickets that it has taken, and of those whose steps have ended."""

    device: str
    queue: Any
    results: Any
    taken: tf.Variable
    ended: tf.Variable
    count: tf.Tensor
    """Feed the argument of `issue` and `receive`, a number of steps, here."""
    issue: tf.Operation
    """Adds this many tickets."""
    receive: list[tf.Tensor]
    """Waits for the results of this many steps: a `Results`."""
    received: tf.Tensor
    """The number of results that `receive` would not wait for."""

    def take(self, worker: int) -> tf.Tensor:
        """A new operation: waits for a ticket of this worker."""
        with tf.device(self.device):
            ticket = self.queue.dequeue()
            with tf.control_dependencies([ticket]):
                counted = _increment(self.taken, worker)
            with tf.control_dependencies([counted]):
                return tf.identity(ticket)

    def end(self, worker: int) -> tf.Operation:
        """A new operation: the step of a ticket has ended."""
        with tf.device(self.device):
            return _increment(self.ended, worker)

    def send(self, worker: int, read: tf.Tensor, applied: tf.Tensor, loss: tf.Tensor) -> tf.Operation:
        """A new operation: sends a result to the chief."""
        with tf.device(self.device):
            return self.results.enqueue([tf.constant(worker, tf.int64), read, applied, loss])

    def put_back(self, worker: int) -> tf.Operation:
        """A new operation: puts back the tickets whose steps this worker was lost in."""
        with tf.device(self.device):
            lost = self.taken.read_value()[worker] - self.ended.read_value()[worker]
            again = self.queue.enqueue_many([tf.zeros([lost], tf.int64)])
            with tf.control_dependencies([again]):
                return tf.raw_ops.ResourceScatterAdd(resource=self.ended.handle, indices=[worker], updates=lost[None])


def create(spec: TrainingSpec) -> Tickets:
    """The tickets of a job, in the current graph. All tasks that create them share them."""
    device = holders(spec)[0]
    with tf.device(device):
        queue = _queue("tickets", [tf.int64])
        results = _queue("results", [tf.int64, tf.int64, tf.int64, tf.float32])
        taken = untracked(tf.zeros([spec.workers], tf.int64), "tickets_taken")
        ended = untracked(tf.zeros([spec.workers], tf.int64), "tickets_ended")
        count = tf.compat.v1.placeholder(tf.int32, ())
        issue = queue.enqueue_many([tf.zeros([count], tf.int64)])
        return Tickets(device, queue, results, taken, ended, count, issue, results.dequeue_many(count), results.size())


def _queue(name: str, types: list[tf.DType]) -> Any:
    return tf.queue.FIFOQueue(-1, types, [()] * len(types), shared_name=name, name=name)


def _increment(counts: tf.Variable, worker: int) -> tf.Operation:
    one = tf.ones([1], tf.int64)
    return tf.raw_ops.ResourceScatterAdd(resource=counts.handle, indices=[worker], updates=one)
