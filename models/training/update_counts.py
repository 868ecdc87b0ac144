"""Counts the updates of parameter-server workers by worker and staleness, on the parameter server that applies them.

The staleness of an update is the number of updates that other workers applied between the moment at which its worker
read the variables and the moment at which it was applied itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

MOST = 255
"""A higher staleness is counted as this one."""
_SERVER = "/job:ps/task:0"
_NO_LIMIT = 2**62


@dataclass(frozen=True)
class UpdateCounts:
    """Variables on the first parameter server, outside of the strategy's scope: the placement of the model's variables
    stays as it is."""

    applied: tf.Variable
    """Number of updates so far."""
    by_staleness: tf.Variable
    """Number of updates of each worker (row) with each staleness (column)."""

    def around(self, update: Callable[[Any, Any], tf.Tensor]) -> Callable[[Any, Any], tf.Tensor]:
        """`update`, which trains a step with a source as a worker and returns its loss, with its staleness counted.

        The number of updates is read when the worker reads the variables: at the start of the step, and nothing waits
        for it. The update gets its own number after it was applied, from one operation that reads and increments, so
        that no two updates have the same. All this happens on the server: numbers do not travel to the worker and back.
        """

        def counted(source: Any, worker: Any) -> tf.Tensor:
            server = self.applied.device
            with tf.device(server):
                before = self.applied.read_value()
            loss = update(source, worker)
            with tf.control_dependencies([loss]), tf.device(server):
                number = tf.raw_ops.ResourceCountUpTo(resource=self.applied.handle, limit=_NO_LIMIT, T=tf.int64)
                cell = tf.stack([worker, tf.minimum(number - before, MOST)])
                add = tf.raw_ops.ResourceScatterNdAdd(
                    ref=self.by_staleness.handle, indices=cell[tf.newaxis], updates=tf.ones([1], tf.int64)
                )
            with tf.control_dependencies([add]):
                return tf.identity(loss)

        return counted

    def read(self) -> Any:
        """The counts of `by_staleness` now, a NumPy array."""
        return self.by_staleness.read_value().numpy()


def create(workers: int) -> UpdateCounts:
    """Counts of a job whose servers are connected: the chief calls it after it has created the strategy."""
    with tf.device(_SERVER):
        return UpdateCounts(
            tf.Variable(0, dtype=tf.int64, trainable=False),
            tf.Variable(tf.zeros([workers, MOST + 1], tf.int64), trainable=False),
        )


def to_json(counts: Any) -> list[list[int]]:
    """Numbers of updates of each worker with staleness 0, 1, and so on, without zeros at the end."""
    rows: list[list[int]] = counts.tolist()
    return [row[: max((index + 1 for index, count in enumerate(row) if count), default=0)] for row in rows]


def of_workers(counts: Any) -> dict[str, list[float]]:
    """Each worker's number of updates, and their mean staleness; 0 without any."""
    updates = counts.sum(axis=1)
    staleness = counts @ range(counts.shape[1]) / updates.clip(1)
    return {"updates": updates.tolist(), "staleness": staleness.round(2).tolist()}
