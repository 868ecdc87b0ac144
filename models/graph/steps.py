"""The loops of chiefs in graph mode."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from tfdist.launch import events
from tfdist.models.graph.tickets import Results, Tickets
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import update_counts
from tfdist.models.training.windows import WindowLog, train_windows


@dataclass
class AsyncSteps:
    """Deals out tickets, and waits for their results: a window ends when as many results have arrived as it has steps.

    Workers take the tickets of all windows of a call one after the other, so they do not wait at the edges.
    """

    session: Any
    spec: TrainingSpec
    tickets: Tickets
    steps: int = 0
    """Trained so far, before the checkpoint too."""
    overlaps: ClassVar[bool] = True

    @property
    def concurrent(self) -> int:
        """Number of workers."""
        return self.spec.workers

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train windows, as `pace.Loop`. With steps before and after them, workers are busy at both edges."""
        self.session.run(self.tickets.issue, {self.tickets.count: before + sum(sizes) + after})
        self._wait_for(before)
        log.open()
        counts = np.zeros((self.spec.workers, update_counts.MOST + 1), np.int64)
        for size in sizes:
            results = self._wait_for(size)
            log.first_step()
            staleness = np.minimum(results.applied - results.read, update_counts.MOST)
            of_window = np.zeros_like(counts)
            np.add.at(of_window, (results.worker, staleness), 1)
            counts += of_window
            log.more = lambda *_, shown=of_window: update_counts.of_workers(shown)  # not in turns: they are quiet
            log.close(size, size * self.spec.batch_size, float(results.loss[-1]))
        if self.spec.count_updates:
            log.observed["updates"] = update_counts.to_json(counts)
        self._wait_for(after)

    def _wait_for(self, steps: int) -> Results:
        self.steps += steps
        return Results(*self.session.run(self.tickets.receive, {self.tickets.count: steps}))


@dataclass
class SyncSteps:
    """Applies the mean gradient of each step as soon as enough workers have sent theirs."""

    session: Any
    spec: TrainingSpec
    tickets: Tickets
    update: tf.Operation
    """Waits for the gradients of a step, and applies them."""
    steps: int = 0
    """Trained so far, before the checkpoint too."""
    dealt: int = 0
    """Tickets that have no result yet."""
    early: dict[int, list[float]] = field(default_factory=dict)
    """The losses of workers that have begun a later step, by its number."""
    concurrent: ClassVar[int] = 1
    overlaps: ClassVar[bool] = False

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train windows, as `pace.Loop`.

        Where a checkpoint may be due, tickets are dealt out for one window at a time, so that no worker changes the
        moving statistics of BatchNorm meanwhile.
        """
        ahead = log.at_edge is None
        if ahead:
            self._deal(before + sum(sizes) + after)
        train_windows(partial(self._run, dealt=ahead), self.spec.global_batch_size, sizes, log, before, after)
        if self.spec.backup_workers and events.in_turns():
            self._take(self.dealt)  # those whose gradients came too late must not disturb another turn

    def _deal(self, steps: int) -> None:
        number = steps * self.spec.workers
        self.session.run(self.tickets.issue, {self.tickets.count: number})
        self.dealt += number

    def _run(self, steps: int, *, dealt: bool) -> float | None:
        """Train steps; returns the loss of the last one, None without any."""
        if not steps:
            return None
        if not dealt:
            self._deal(steps)
        for _ in range(steps):
            self.session.run(self.update)
        self.steps += steps
        self._take(int(self.session.run(self.tickets.received)))
        losses = self.early[self.steps - 1]  # workers may have sent those of later steps
        self.early = {step: later for step, later in self.early.items() if step >= self.steps}
        return float(np.mean(losses))

    def _take(self, number: int) -> None:
        """Wait for this many results."""
        self.dealt = max(0, self.dealt - number)
        results = Results(*self.session.run(self.tickets.receive, {self.tickets.count: number}))
        for step, loss in zip(results.read.tolist(), results.loss.tolist(), strict=True):
            self.early.setdefault(step, []).append(loss)


@dataclass
class InGraphSteps:
    """Runs the one graph, a step for each call."""

    session: Any
    examples_per_step: int
    step: tf.Operation
    loss: tf.Tensor
    """Mean over the global batch of a step."""
    steps: int = 0
    """Trained so far, before the checkpoint too."""
    concurrent: ClassVar[int] = 1
    overlaps: ClassVar[bool] = False

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train windows, as `pace.Loop`."""
        train_windows(self._run, self.examples_per_step, sizes, log, before, after)

    def _run(self, steps: int) -> float | None:
        if not steps:
            return None
        for _ in range(steps - 1):
            self.session.run(self.step)
        _, loss = self.session.run([self.step, self.loss])
        self.steps += steps
        return float(loss)
