"""The loop of synchronous strategies and of independent tasks. The clock of step times is read inside a step."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import tensorflow as tf

from tfdist.models.architectures.parameters import gradient_bytes
from tfdist.models.spec import TrainingSpec, calls
from tfdist.models.training import feed, optimizers, restore, step
from tfdist.models.training.context import TrainingContext, TrainingState
from tfdist.models.training.straggler import stamp
from tfdist.models.training.windows import WindowLog, sampled, train_windows
from tfdist.strategies.devices import wait_for_devices

MOST_STEPS = 1000
"""Maximum number of steps of a turn or window that are kept; earlier ones are dropped."""
DIGITS = 6
"""tf.timestamp counts microseconds."""


class _Stamps(NamedTuple):
    """The stamps of a step: of each replica of this task, and of its end."""

    begun: tuple[tf.Tensor, ...]
    """When the batch was there; empty if that is not read."""
    ready: tuple[tf.Tensor, ...]
    done: tf.Tensor


@dataclass
class StepTimes:
    """The stamps of the steps of a turn or window. They stay in tensors until it is over."""

    strategy: tf.distribute.Strategy
    gpus: bool
    gradient_bytes: int
    """Bytes of all gradients of a replica, as they are exchanged."""
    steps: deque[_Stamps] = field(default_factory=lambda: deque(maxlen=MOST_STEPS + 1))

    def measured(self, step: Callable[[Any], Any]) -> Callable[[Any, int], Any]:
        """A call with a source of batches and the number of steps, which is 1, that returns the losses.

        Args:
            step: from the source to the replicas' losses and their stamps, those of the gradients last.
        """
        whole = tf.function(step)  # a function of its own: what depends on its result also waits for its updates

        @tf.function
        def stamped(source: Any) -> tuple[Any, Any, tf.Tensor]:
            losses, *stamps = whole(source)
            return losses, stamps, stamp(self.strategy.experimental_local_results(losses), self.gpus)

        def call(source: Any, steps: int) -> Any:
            losses, stamps, done = stamped(source)
            *begun, ready = map(self.strategy.experimental_local_results, stamps)
            self.steps.append(_Stamps(begun[0] if begun else (), ready, done))
            return losses

        return call

    def take(self) -> dict[str, Any]:
        """JSON: `start` in seconds since 1970, and for each step since the last call the seconds since `start`.

        `ready` has a list for each replica of this task, `done` is the end of its update. The first step is the one
        before the windows: it only says when the first timed step began.
        """
        steps = list(self.steps)
        self.steps.clear()
        done = [float(step.done) for step in steps]
        start = done[0] if done else 0.0

        def since_start(stamps: Sequence[Any]) -> list[float]:
            return [round(float(each) - start, DIGITS) for each in stamps]

        rows = zip(*(step.ready for step in steps), strict=True)
        times = {"ready": list(map(since_start, rows)), "done": since_start(done)}
        return {"start": start, **times, "gradient_bytes": self.gradient_bytes}

    def since(self, step: int, count: int) -> dict[str, Any]:
        """JSON for the `step` event of a window of `count` steps up to `step`: times of those that `sampled` chooses.

        They are milliseconds from the end of the step before: `own_ms` until this task's gradients were ready,
        `input_ms` until its batches were there.
        """
        steps = list(self.steps)
        self.steps = deque(steps[-1:], self.steps.maxlen)  # the next window starts at its end
        every, numbers = sampled(step, min(count, len(steps) - 1))
        times: dict[str, list[float]] = {"own_ms": [], "input_ms": []}
        # what happens between two windows, as a checkpoint, would count to the first step
        for number in [number for number in numbers if number > step - count + 1] or numbers:
            index = len(steps) - 1 - (step - number)
            for name, stamps in (("own_ms", steps[index].ready), ("input_ms", steps[index].begun)):
                if stamps:
                    seconds = max(map(float, stamps)) - float(steps[index - 1].done)
                    times[name].append(round(1000 * seconds, 2))
        return {"every": every, **{name: values for name, values in times.items() if values}}


@dataclass
class SyncLoop:
    """Runs steps one after the other; the loss of the last one is fetched at the end of a window."""

    job: TrainingContext
    run_steps: Callable[[int], Any]
    """Trains a call of N steps; returns each replica's loss of the last one."""
    fetch: Callable[[Any], float]
    """Their sum; waits for the devices."""
    steps: int
    """Trained so far, before the checkpoint too."""
    times: StepTimes | None
    """Times of the steps; None: not measured."""
    concurrent: ClassVar[int] = 1
    overlaps: ClassVar[bool] = False

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train windows, as `pace.Loop`."""
        if self.times is not None and not log.quiet and self.job.workers > 1:
            log.more = self.times.since
        train_windows(self._run, self.job.task_batch, sizes, log, before, after)
        if self.times is not None and log.quiet:
            log.observed["step_times"] = self.times.take()

    def _run(self, steps: int) -> float | None:
        losses = None
        for size in calls(steps, self.job.spec.steps_per_call):
            losses = self.run_steps(size)
        self.steps += steps
        loss = None if losses is None else self.fetch(losses)
        wait_for_devices(self.job.strategy)
        return loss


def prepare(job: TrainingContext) -> tuple[SyncLoop, Callable[[], TrainingState]]:
    """The loop of this task, and what it has trained so far."""
    spec, strategy = job.spec, job.strategy
    model, optimizer, averages, replica_step = step.build(job)
    restore.restore(job, model, optimizer, averages)
    batches = feed.synchronous(job)
    times = StepTimes(strategy, spec.gpus, gradient_bytes(spec)) if spec.step_times else None
    run_steps = _run_steps(lambda source: strategy.run(replica_step, batches.draw(source)), strategy, spec, times)
    total = tf.function(lambda losses: strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None))
    run = partial(run_steps, batches.source)
    loop = SyncLoop(job, run, lambda losses: float(total(losses)), job.start.step, times)

    def trained() -> TrainingState:
        own = job.examples_at(loop.steps) // job.workers
        return TrainingState(model, optimizer, own, optimizers.updates(optimizer), batches, averages)

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
