"""The loop of a parameter-server job: the chief schedules steps and workers apply them."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from tfdist.models.spec import calls
from tfdist.models.training import feed, optimizers, restore, step, update_counts
from tfdist.models.training.context import TrainingContext, TrainingState
from tfdist.models.training.step import ReplicaStep
from tfdist.models.training.update_counts import UpdateCounts
from tfdist.models.training.windows import WindowLog

Update = Callable[[Any, Any], tf.Tensor]
"""Trains a step on a batch of a source, with the worker's index; returns the loss."""


def build_worker_step(
    job: TrainingContext,
    replica_step: ReplicaStep,
    draw: Callable[[Any], Any],
    applied: tf.Variable,
    counts: UpdateCounts | None,
) -> Any:
    """A tf.function that trains the steps of a closure, and returns the last one's loss.

    Its arguments are the source and, if `steps_per_call` is not 1, the number of steps.

    Args:
        job: the training.
        replica_step: one step.
        draw: draws a batch from a source.
        applied: number of examples, to which those of a closure are added at its end.
        counts: of the updates; None: they are not counted.
    """
    train = _train_function(job, replica_step, draw)
    update = train if counts is None else counts.around(train)
    needs_index = counts is not None or job.spec.slow_worker is not None

    @tf.function
    def several(source: Any, worker: Any, steps: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(steps):
            loss = update(source, worker)
        return loss

    def index() -> Any:
        # in the outermost function: TensorFlow fills it in when the closure is sent to a worker
        return tf.distribute.coordinator.experimental_get_current_worker_index() if needs_index else None

    def counted(loss: tf.Tensor, steps: Any) -> tf.Tensor:
        with tf.control_dependencies([loss]):
            applied.assign_add(job.batch * tf.cast(steps, tf.int64), use_locking=True, read_value=False)
        return loss

    if job.spec.steps_per_call == 1:
        return tf.function(lambda source: counted(update(source, index()), 1))
    return tf.function(lambda source, steps: counted(several(source, index(), steps), steps))


def _train_function(job: TrainingContext, replica_step: ReplicaStep, draw: Callable[[Any], Any]) -> Update:
    """A tf.function of its own: whatever depends on its result also waits for its updates."""
    slow = job.spec.slow_worker

    @tf.function
    def train(source: Any, worker: Any) -> tf.Tensor:
        slowness = () if slow is None else (tf.cast(worker == slow, tf.float64),)
        losses = job.strategy.run(replica_step, (*draw(source), *slowness))
        return job.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    update: Update = train
    return update


AHEAD = 2
"""Windows scheduled beyond the one being timed, so that workers never run out of work."""


@dataclass
class AsyncLoop:
    """The coordinator: `schedule` returns the RemoteValue of a closure's last loss, `drain` waits for all closures.

    A window ends when the last step scheduled for it is done. Its examples are those that all workers applied
    meanwhile, from a counter on a parameter server. If all of them were counted before, the window becomes part of the
    next one, or is dropped if it is the last.
    """

    schedule: Callable[[int], Any]
    """Schedules a closure of N steps."""
    drain: Callable[[], None]
    applied: tf.Variable
    examples_per_step: int
    concurrent: int
    """Number of workers."""
    overlaps: ClassVar[bool] = True
    steps_per_call: int = 1
    """Steps of each closure."""
    counts: UpdateCounts | None = None
    """Counts of the updates; None: they are not counted."""
    _counted: Any = 0
    """The counts at the last window's end."""

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train windows, as `pace.Loop`. With steps before and after them, workers are busy at both edges."""
        log.more = None if self.counts is None or log.quiet else self._updates
        waiting = deque([*sizes, after])
        first = self._schedule(before)
        pending = self._fill(deque(), waiting)
        if first is not None:
            first.fetch()
        updates = self._counted = 0 if self.counts is None else self.counts.read()
        counted = self._count()  # before the clock is read, as at the other edges
        log.open()
        for _ in sizes:
            last = self._fill(pending, waiting).popleft()
            if not waiting and len(pending) == 1 and not after:
                self.drain()  # the last window ends with all of its steps
            counted = self._close(last, counted, log)
        if self.counts is not None and log.quiet:
            log.observed["updates"] = update_counts.to_json(self.counts.read() - updates)
        self.drain()

    def _updates(self, _step: int, _count: int) -> dict[str, Any]:
        """JSON for a `step` event: each worker's updates since the last call, and how stale they were on average."""
        before = self._counted
        self._counted = self.counts.read() if self.counts is not None else 0
        return update_counts.of_workers(self._counted - before)

    def _fill(self, pending: deque[Any], waiting: deque[int]) -> deque[Any]:
        while waiting and len(pending) <= AHEAD:
            pending.append(self._schedule(waiting.popleft()))
        return pending

    def _schedule(self, steps: int) -> Any:
        """Schedule steps; returns the RemoteValue of the last one, None without any."""
        last = None
        for size in calls(steps, self.steps_per_call):
            last = self.schedule(size)
        return last

    def _count(self) -> int:
        return int(self.applied.read_value())

    def _close(self, last: Any, counted: int, log: WindowLog) -> int:
        """Wait for a window's last step and close it, unless all its examples were counted before; the new count."""
        loss = float(last.fetch())
        log.first_step()
        now = self._count()
        if now > counted:
            log.close((now - counted) // self.examples_per_step, now - counted, loss)
        return now


def prepare(job: TrainingContext) -> tuple[AsyncLoop, Callable[[], TrainingState]]:
    """The loop of the chief, and what the workers have trained so far."""
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(job.strategy)
    model, optimizer, averages, replica_step = step.build(job)
    with job.strategy.scope():
        applied = tf.Variable(job.start.examples, dtype=tf.int64, trainable=False, name="examples_applied")
    restore.restore(job, model, optimizer, averages)
    batches = feed.asynchronous(job, coordinator, applied.read_value)
    counts = update_counts.create(job.spec.workers) if job.spec.count_updates else None
    closure = build_worker_step(job, replica_step, batches.draw, applied, counts)

    def schedule(steps: int) -> Any:
        several = (tf.constant(steps),) if job.spec.steps_per_call > 1 else ()
        return coordinator.schedule(closure, (batches.source, *several))

    loop = AsyncLoop(schedule, coordinator.join, applied, job.batch, job.spec.workers, job.spec.steps_per_call, counts)
    # dropping a coordinator waits for its workers
    keep_alive = batches, coordinator

    def trained() -> TrainingState:
        examples = int(applied.read_value())
        return TrainingState(model, optimizer, examples, optimizers.updates(optimizer), keep_alive, averages)

    return loop, trained
