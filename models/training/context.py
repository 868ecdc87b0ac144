"""What a training task works on and what comes of it: passed between task, loops and evaluation."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.record import Window
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.windows import WindowLog


@dataclass(frozen=True)
class TrainingContext:
    """This task's view of the training."""

    spec: TrainingSpec
    strategy: tf.distribute.Strategy
    task: Task
    workers: int
    """Tasks that step together; 1 for independent ones, and for parameter-server, whose workers step alone."""

    @property
    def replicas(self) -> int:
        """Replicas of this task (parameter-server: of each worker)."""
        count: int = self.strategy.num_replicas_in_sync
        return count // self.workers

    @property
    def batch(self) -> int:
        """Examples of one step of all tasks that step together: what gradients are averaged over."""
        return self.spec.batch_size * self.replicas * self.workers


@dataclass(frozen=True)
class TrainingResult:
    """A training that is done."""

    model: tf.keras.Model
    warmup: tuple[Window, ...]
    windows: tuple[Window, ...]
    opened_at: float
    """time.perf_counter() when the first window began."""
    first_step_at: float
    """time.perf_counter() when the first step, tracing included, had really finished."""
    updates: int
    """The optimizer's iterations."""
    kept: Any
    """What must not be freed while the task still has to do: the end of a data iterator can take a minute.

    tf.data's tuning thread misses being cancelled if it looks a moment too early, and then sleeps its whole period.
    """

    @classmethod
    def of(cls, model: tf.keras.Model, log: WindowLog, updates: int, kept: Any) -> "TrainingResult":
        """What `log` wrote down of the training of `model`, fed by `kept`."""
        opened, first = log.opened_at or 0.0, log.first_step_at or 0.0
        return cls(model, tuple(log.warmup), tuple(log.timed), opened, first, updates, kept)

    @property
    def examples(self) -> int:
        """Gone through by this task in all windows; under parameter-server by all workers, from the counter."""
        return sum(window.examples for window in (*self.warmup, *self.windows))
