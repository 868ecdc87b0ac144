"""The steps of a training and its windows: those of its spec, or turns that the launcher releases. No TensorFlow."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from tfdist.launch import events
from tfdist.launch.events import Turn
from tfdist.models.record import Window
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.schedule import schedule
from tfdist.models.training.windows import WindowLog, step_s

OPENING_STEPS = 4
"""After the first step and before the first turn: the same in all arms, so that their losses can be compared."""


class Loop(Protocol):
    """The steps of one task."""

    @property
    def concurrent(self) -> int:
        """Steps that run at the same time: the workers of an asynchronous job; else 1."""

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train `before` steps, then windows of these sizes in steps, each logged, then `after` steps."""


@dataclass(frozen=True)
class Windows:
    """The windows of a whole training that is not paced by turns; the warm-up only of one that is."""

    warmup: tuple[Window, ...]
    timed: tuple[Window, ...] = ()


def train(loop: Loop, log: WindowLog, spec: TrainingSpec, report: Callable[[Windows, bool], None]) -> None:
    """Train as long as the launcher releases turns; without turns, the steps of `spec`.

    Args:
        loop: the steps.
        log: a fresh one.
        spec: of the training.
        report: sends the record of this task: before the first turn (False), and at the end (True).
    """
    if events.in_turns():
        log.quiet = True
        loop.windows((1, OPENING_STEPS * loop.concurrent), log)
        opening = Windows(log.take())
        report(opening, False)
        take_turns(loop, log, step_s(opening.warmup[1:]) * loop.concurrent)
        report(opening, True)
    else:
        report(_train_steps(loop, log, spec), True)


def take_turns(loop: Loop, log: WindowLog, seconds: float) -> None:
    """Train a turn whenever the launcher releases this task, until it sends an empty one.

    Args:
        loop: the steps.
        log: without windows.
        seconds: that a step takes, or, of concurrent steps, that so many take together.
    """
    while (turn := events.wait_at_barrier(step_s=seconds)) is not None and turn.windows:
        windows = _train_turn(loop, log, turn)
        events.emit("turn", windows=[asdict(window) for window in windows])
        seconds = step_s(windows) * loop.concurrent


def _train_turn(loop: Loop, log: WindowLog, turn: Turn) -> tuple[Window, ...]:
    # A concurrent loop needs work on all workers at both edges; any other one only lets its first step pass.
    before, after = (loop.concurrent, loop.concurrent) if loop.concurrent > 1 else (1, 0)
    loop.windows((turn.steps * loop.concurrent,) * turn.windows, log, before, after)
    return log.take()


def _train_steps(loop: Loop, log: WindowLog, spec: TrainingSpec) -> Windows:
    log.total = spec.steps
    plan = schedule(spec, 2 * loop.concurrent if loop.concurrent > 1 else 0)
    if plan.warmup:
        loop.windows(plan.warmup, log)
    warmup = log.take()
    events.wait_at_barrier()
    loop.windows(plan.timed, log, plan.before, plan.after)
    return Windows(warmup, log.take())
