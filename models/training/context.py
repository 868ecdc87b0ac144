"""What a training task works on, and its result: passed between task, loops and evaluation."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.record import Window
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.windows import WindowLog


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
class TrainingResult:
    """A finished training."""

    model: tf.keras.Model
    warmup: tuple[Window, ...]
    windows: tuple[Window, ...]
    opened_at: float
    """time.perf_counter() at the start of the first window."""
    first_step_at: float
    """time.perf_counter() at the end of the first step, tracing included."""
    updates: int
    """The optimizer's iterations."""
    keep_alive: Any
    """Referenced until the task exits, because freeing a data iterator can take a minute.

    tf.data's tuning thread can miss its cancellation, and then sleeps for a whole period.
    """

    @classmethod
    def of(cls, model: tf.keras.Model, log: WindowLog, updates: int, keep_alive: Any) -> "TrainingResult":
        """The result of a training whose windows are in `log`."""
        opened, first = log.opened_at or 0.0, log.first_step_at or 0.0
        return cls(model, tuple(log.warmup), tuple(log.timed), opened, first, updates, keep_alive)

    @property
    def examples(self) -> int:
        """Examples in all windows, processed by this task; parameter-server: applied by all workers."""
        return sum(window.examples for window in (*self.warmup, *self.windows))
