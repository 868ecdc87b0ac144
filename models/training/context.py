"""What a training task works on, and its result: passed between task, loops and evaluation."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.spec import TrainingSpec


@dataclass(frozen=True)
class TrainingContext:
    """The training, as one of its tasks needs it."""

    spec: TrainingSpec
    strategy: tf.distribute.Strategy
    task: Task
    workers: int
    """Tasks that step together; 1 for independent tasks and for parameter-server, whose workers step alone."""

    @property
    def replicas(self) -> int:
        """Replicas of this task (parameter-server: of each worker)."""
        count: int = self.strategy.num_replicas_in_sync
        return count // self.workers

    @property
    def batch(self) -> int:
        """Examples in one step of all tasks that step together: gradients are averaged over them."""
        return self.spec.batch_size * self.replicas * self.workers


@dataclass(frozen=True)
class Trained:
    """What a task has trained so far."""

    model: tf.keras.Model
    examples: int
    """By this task's replicas; asynchronous: applied by all workers."""
    updates: int
    """The optimizer's iterations."""
    keep_alive: Any
    """Referenced until the task exits, because freeing a data iterator or a coordinator can take a minute.

    tf.data's tuning thread can miss its cancellation, and then sleeps for a whole period.
    """
