"""The timed loop of a parameter-server job: the chief schedules steps, workers apply them as they come."""

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
"""Windows that are already scheduled while one is waited for: workers never run out of work."""


def train(job: TrainingContext) -> TrainingResult:
    """Schedule `job.spec.steps` steps, wherever a worker is free, and time what was applied.

    A timed window ends when the last step that was scheduled for it is done; what counts is how many examples all
    workers had applied by then, read from one counter on a parameter server. A window whose steps were all applied
    before it is part of the next one, or of none if it is the last. Only the last window waits for all of its steps.
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
    return TrainingResult.of(model, log, optimizers.updates(optimizer), batches)


def _worker_step(
    job: TrainingContext, replica_step: step.ReplicaStep, draw: Callable[[Any], Any], applied: tf.Variable
) -> Any:
    """The tf.function that one worker runs: a step, then its examples added to the counter; its loss comes back."""

    # A function of its own: what depends on its result also waits for the updates that it makes.
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
    """The coordinator's side: `schedule_one` gives the RemoteValue of a step's loss, `drain` waits for all steps."""

    log: WindowLog
    schedule_one: Callable[[], Any]
    drain: Callable[[], None]
    applied: tf.Variable
    examples_per_step: int
    counted: int = 0
    """Examples in the windows that are closed."""

    def train(self, windows: tuple[int, ...]) -> None:
        """Go through all windows; those of the warm-up are drained one by one, so that their times compare."""
        sizes = deque(windows)
        while not self.log.warm:
            self.log.open()
            last = self._fill(sizes.popleft())
            self.drain()
            self._close(last)
        self.log.open()
        waiting: deque[Any] = deque()
        while sizes or waiting:
            while sizes and len(waiting) <= AHEAD:
                waiting.append(self._fill(sizes.popleft()))
            last = waiting.popleft()
            if not (sizes or waiting):
                self.drain()
            self._close(last)

    def _fill(self, steps: int) -> Any:
        """Schedule one window and return its last step's RemoteValue."""
        last = self.schedule_one()
        if self.log.first_step_at is None:
            last.fetch()
            self.log.first_step()
        for _ in range(steps - 1):
            last = self.schedule_one()
        return last

    def _close(self, last: Any) -> None:
        """Wait for a window's last step and close it; if all of it was counted before, the next one goes on with it."""
        loss = float(last.fetch())
        now = int(self.applied.read_value())
        examples, self.counted = now - self.counted, now
        if examples:
            self.log.close(examples // self.examples_per_step, examples, loss)
