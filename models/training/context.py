"""What a training task works on, and its result: passed between task, loops and evaluation."""

from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.moving_averages import MovingAverages
from tfdist.strategies.catalog import CATALOG


@dataclass(frozen=True)
class StartPoint:
    """Where a training starts: at the beginning, or at a checkpoint."""

    step: int = 0
    examples: int = 0
    """Trained so far by all workers together."""
    path: str | None = None
    """The common beginning of the names of the checkpoint's files."""


@dataclass(frozen=True)
class TrainingContext:
    """The training, as one of its tasks needs it."""

    spec: TrainingSpec
    strategy: tf.distribute.Strategy
    task: Task
    workers: int
    """Tasks that step together; 1 for independent tasks and for parameter-server, whose workers step alone."""
    start: StartPoint = field(default_factory=StartPoint)
    server: Any = None
    """The tf.distribute.Server of a chief in graph mode, which trains nothing itself: its `strategy` is TensorFlow's
    default one, of its copies of the variables."""

    @property
    def replicas(self) -> int:
        """Replicas of this task (parameter-server: of each worker)."""
        return int(self.strategy.num_replicas_in_sync) // self.workers

    @property
    def task_batch(self) -> int:
        """Examples in one step of this task's replicas (parameter-server: of one worker's)."""
        return self.spec.batch_size * self.replicas

    @property
    def batch(self) -> int:
        """Examples in one step of all tasks that step together: gradients are averaged over them."""
        if CATALOG[self.spec.strategy].graph:
            return self.spec.update_examples
        return self.task_batch * self.workers

    @property
    def variables_on_servers(self) -> bool:
        """The strategy keeps them on parameter servers, and this task saves them from there."""
        return not self.spec.synchronous and not CATALOG[self.spec.strategy].graph

    def examples_at(self, step: int) -> int:
        """Examples that all workers together have trained at this step, under this number of workers from the start."""
        return self.start.examples + (step - self.start.step) * self.batch


@dataclass(frozen=True)
class TrainingState:
    """What a task has trained so far."""

    model: tf.keras.Model
    optimizer: Any
    examples: int
    """Examples of this task's replicas; asynchronous: applied by all workers."""
    updates: int
    """The optimizer's iterations."""
    keep_alive: Any
    """Referenced until the task exits, because freeing a data iterator or a coordinator can take a minute.

    tf.data's tuning thread can miss its cancellation, and then sleeps for a whole period.
    """
    averages: MovingAverages | None = None

    def evaluated_weights(self) -> list[Any]:
        """NumPy arrays in the order of `model.weights`: with the moving averages, if there are any."""
        return list(self.model.get_weights()) if self.averages is None else self.averages.evaluated(self.model)
