"""The loop of synchronous strategies and of independent tasks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from tfdist.models.training import feed, optimizers, step
from tfdist.models.training.context import Trained, TrainingContext
from tfdist.models.training.sync import wait_for_devices
from tfdist.models.training.windows import WindowLog


@dataclass
class SyncLoop:
    """Runs steps one after the other; the loss of the last one is fetched at the end of a window."""

    strategy: tf.distribute.Strategy
    examples_per_step: int
    """Of this task's replicas."""
    run_step: Callable[[], Any]
    """The loss of each replica."""
    fetch: Callable[[Any], float]
    """Their sum; waits for the devices."""
    steps: int = 0
    """Trained so far."""
    concurrent: ClassVar[int] = 1

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train windows, as `pace.Loop`."""
        self._run(before)
        log.open()
        for size in sizes:
            loss = self._run(size)
            log.first_step()
            log.close(size, size * self.examples_per_step, loss)
        self._run(after)

    def _run(self, steps: int) -> float | None:
        losses = None
        for _ in range(steps):
            losses = self.run_step()
        self.steps += steps
        loss = None if losses is None else self.fetch(losses)
        wait_for_devices(self.strategy)
        return loss


def prepare(job: TrainingContext) -> tuple[SyncLoop, Callable[[], Trained]]:
    """The loop of this task, and what it has trained so far."""
    spec, strategy = job.spec, job.strategy
    model, optimizer, replica_step = step.build(job)
    batches = feed.synchronous(spec, strategy, feed.share(spec, job.task, job.replicas))
    all_replicas = tf.function(lambda source: strategy.run(replica_step, batches.draw(source)))
    total = tf.function(lambda losses: strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None))
    examples = spec.batch_size * job.replicas
    loop = SyncLoop(strategy, examples, lambda: all_replicas(batches.source), lambda losses: float(total(losses)))
    return loop, lambda: Trained(model, loop.steps * examples, optimizers.updates(optimizer), batches)
