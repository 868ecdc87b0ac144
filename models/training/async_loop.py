"""The loop of a parameter-server job: the chief schedules steps and workers apply them."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from tfdist.models.calls import calls
from tfdist.models.record import Storage
from tfdist.models.training import feed, optimizers, restore, step, update_counts, worker_step
from tfdist.models.training.context import Trained, TrainingContext
from tfdist.models.training.update_counts import UpdateCounts
from tfdist.models.training.windows import WindowLog

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

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train windows, as `pace.Loop`. With steps before and after them, workers are busy at both edges."""
        waiting = deque([*sizes, after])
        first, pending = self._schedule(before), self._fill(deque(), waiting)
        if first is not None:
            first.fetch()
        updates = None if self.counts is None else self.counts.read()
        counted = self._count()  # before the clock is read, as at the other edges
        log.open()
        for _ in sizes:
            last = self._fill(pending, waiting).popleft()
            if not waiting and len(pending) == 1 and not after:
                self.drain()  # the last window ends with all of its steps
            counted = self._close(last, counted, log)
        if self.counts is not None:
            log.observed["updates"] = update_counts.to_json(self.counts.read() - updates)
        self.drain()

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


def prepare(job: TrainingContext) -> tuple[AsyncLoop, Callable[[], Trained]]:
    """The loop of the chief, and what the workers have trained so far."""
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(job.strategy)
    model, optimizer, averages, replica_step = step.build(job)
    with job.strategy.scope():
        applied = tf.Variable(job.start.examples, dtype=tf.int64, trainable=False, name="examples_applied")
    restore.restore(job, model, optimizer, averages)
    batches = feed.asynchronous(job.spec, job.strategy, coordinator, job.replicas, applied.read_value)
    counts = update_counts.create(job.spec.workers) if job.spec.count_updates else None
    requests: dict[str, Storage] = {}
    closure = worker_step.build(job, worker_step.Parts(replica_step, batches.draw, applied, counts, requests))
    several = job.spec.steps_per_call > 1
    loop = AsyncLoop(
        lambda steps: coordinator.schedule(
            closure, (batches.source, tf.constant(steps)) if several else (batches.source,)
        ),
        coordinator.join,
        applied,
        job.batch,
        job.spec.workers,
        job.spec.steps_per_call,
        counts,
    )
    # dropping a coordinator waits for its workers
    keep_alive = batches, coordinator

    def trained() -> Trained:
        examples = int(applied.read_value())
        return Trained(model, optimizer, examples, optimizers.updates(optimizer), keep_alive, requests, averages)

    return loop, trained
