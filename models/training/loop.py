"""The loop of synchronous strategies and of independent tasks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from tfdist.models.calls import calls
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import feed, optimizers, restore, step
from tfdist.models.training.context import Trained, TrainingContext
from tfdist.models.training.step_times import StepTimes, gradient_bytes
from tfdist.models.training.sync import wait_for_devices
from tfdist.models.training.windows import WindowLog, train_windows


@dataclass
class SyncLoop:
    """Runs steps one after the other; the loss of the last one is fetched at the end of a window."""

    strategy: tf.distribute.Strategy
    examples_per_step: int
    """Examples of this task's replicas in a step."""
    run_steps: Callable[[int], Any]
    """Trains a call of N steps; returns each replica's loss of the last one."""
    fetch: Callable[[Any], float]
    """Their sum; waits for the devices."""
    steps_per_call: int = 1
    steps: int = 0
    """Trained so far, before the checkpoint too."""
    times: StepTimes | None = None
    """Times of the steps; None: not measured."""
    concurrent: ClassVar[int] = 1
    overlaps: ClassVar[bool] = False

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train windows, as `pace.Loop`."""
        train_windows(self._run, self.examples_per_step, sizes, log, before, after)
        if self.times is not None:
            log.observed["step_times"] = self.times.take()

    def _run(self, steps: int) -> float | None:
        losses = None
        for size in calls(steps, self.steps_per_call):
            losses = self.run_steps(size)
        self.steps += steps
        loss = None if losses is None else self.fetch(losses)
        wait_for_devices(self.strategy)
        return loss


def prepare(job: TrainingContext) -> tuple[SyncLoop, Callable[[], Trained]]:
    """The loop of this task, and what it has trained so far."""
    spec, strategy = job.spec, job.strategy
    model, optimizer, averages, replica_step = step.build(job)
    restore.restore(job, model, optimizer, averages)
    batches = feed.synchronous(spec, strategy, feed.share(spec, job.task, job.replicas), job.start.examples)
    times = None
    if spec.step_times:
        times = StepTimes(strategy, spec.gpus, gradient_bytes(model, spec.gradient_dtype.value))
    run_steps = _run_steps(lambda source: strategy.run(replica_step, batches.draw(source)), strategy, spec, times)
    total = tf.function(lambda losses: strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None))
    loop = SyncLoop(
        strategy,
        spec.batch_size * job.replicas,
        lambda steps: run_steps(batches.source, steps),
        lambda losses: float(total(losses)),
        spec.steps_per_call,
        job.start.step,
        times,
    )

    def trained() -> Trained:
        own = job.examples_at(loop.steps) // job.workers
        return Trained(model, optimizer, own, optimizers.updates(optimizer), batches, averages=averages)

    return loop, trained


def _run_steps(
    step: Callable[[Any], Any], strategy: tf.distribute.Strategy, spec: TrainingSpec, times: StepTimes | None
) -> Callable[[Any, int], Any]:
    """A call of a tf.function with the source and the number of steps, which is 1 unless `steps_per_call` is more."""
    if times is not None:
        return times.measured(step)
    if spec.steps_per_call == 1:
        one = tf.function(step)
        return lambda source, steps: one(source)

    @tf.function
    def several(source: Any, steps: tf.Tensor) -> Any:
        losses = strategy.run(lambda: tf.constant(0.0))
        for _ in tf.range(steps):
            losses = step(source)
        return losses

    return lambda source, steps: several(source, tf.constant(steps))
