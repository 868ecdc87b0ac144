"""The timed loop of a parameter-server job: the chief schedules steps and workers apply them."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.models.training import feed, optimizers, step
from tfdist.models.training.context import TrainingContext, TrainingResult
from tfdist.models.training.schedule import schedule
from tfdist.models.training.windows import WindowLog

AHEAD = 2
"""Windows scheduled beyond the one being timed, so that workers never run out of work."""


def train(job: TrainingContext) -> TrainingResult:
    """Schedule `job.spec.steps` steps on free workers, and time the applied ones.

    A timed window ends when the last step scheduled for it is done. Its examples are those that all workers applied
    by then, from a counter on a parameter server. If all of them were counted before, the window becomes part of the
    next one, or is dropped if it is the last. Only the last window waits for all of its steps.
    """
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(job.strategy)
    model, optimizer, replica_step = step.build(job)
    with job.strategy.scope():
        applied = tf.Variable(0, dtype=tf.int64, trainable=False, name="examples_applied")
    batches = feed.asynchronous(job.spec, job.strategy, coordinator, job.replicas)
    worker_step = _worker_step(job, replica_step, batches.draw, applied)
    log = WindowLog(schedule(job.spec))
    chief = _Chief(
        log, lambda: coordinator.schedule(worker_step, (batches.source,)), coordinator.join, applied, job.batch
    )
    chief.train(log.schedule.windows)
    return TrainingResult(model, log, optimizers.updates(optimizer), batches)


def _worker_step(
    job: TrainingContext, replica_step: step.ReplicaStep, draw: Callable[[Any], Any], applied: tf.Variable
) -> Any:
    """The tf.function that a worker runs: a step, then its examples are added to the counter. Returns the loss."""

    # A separate function: whatever depends on its result also waits for its updates.
    @tf.function
    def update(source: Any) -> tf.Tensor:
        losses = job.strategy.run(replica_step, draw(source))
        return job.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    @tf.function
    def update_and_count(source: Any) -> tf.Tensor:
        loss = update(source)
        with tf.control_dependencies([loss]):
            applied.assign_add(job.batch, use_locking=True, read_value=False)
        return loss

    return update_and_count


@dataclass
class _Chief:
    """The coordinator: `schedule_one` returns the RemoteValue of a step's loss, `drain` waits for all steps."""

    log: WindowLog
    schedule_one: Callable[[], Any]
    drain: Callable[[], None]
    applied: tf.Variable
    examples_per_step: int
    counted: int = 0
    """Examples in closed windows."""

    def train(self, windows: tuple[int, ...]) -> None:
        """Run all windows. Warm-up windows are drained one by one, so that their times are comparable."""
        sizes = deque(windows)
        while not self.log.warm:
            self.log.open()
            last = self._fill(sizes.popleft())
            self.drain()
            self._close(last)
        self.log.open()
        pending: deque[Any] = deque()
        while sizes or pending:
            while sizes and len(pending) <= AHEAD:
                pending.append(self._fill(sizes.popleft()))
            last = pending.popleft()
            if not (sizes or pending):
                self.drain()
            self._close(last)

    def _fill(self, steps: int) -> Any:
        """Schedule one window and return its last step's RemoteValue."""
        last = self.schedule_one()
        if not self.log.first_step_at:
            last.fetch()
            self.log.first_step()
        for _ in range(steps - 1):
            last = self.schedule_one()
        return last

    def _close(self, last: Any) -> None:
        """Wait for a window's last step and close it, unless all its examples were counted before."""
        loss = float(last.fetch())
        now = int(self.applied.read_value())
        examples, self.counted = now - self.counted, now
        if examples:
            self.log.close(examples // self.examples_per_step, examples, loss)
