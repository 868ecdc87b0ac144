"""The steps of a training and its windows: those of its spec, or turns that the launcher releases. No TensorFlow."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from tfdist.launch import events
from tfdist.launch.events import Turn
from tfdist.models.calls import whole_calls
from tfdist.models.record import Window
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.schedule import schedule
from tfdist.models.training.tracing import tracing
from tfdist.models.training.windows import WindowLog, step_s

OPENING_STEPS = 4
"""Steps between the first step and the first turn: the same in all arms, so that their losses can be compared."""


class Loop(Protocol):
    """The steps of one task."""

    @property
    def concurrent(self) -> int:
        """Calls that run at the same time: the workers of an asynchronous job; else 1."""

    @property
    def overlaps(self) -> bool:
        """Steps before and after the windows run at the same time as those of the windows."""

    def windows(self, sizes: Sequence[int], log: WindowLog, before: int = 0, after: int = 0) -> None:
        """Train `before` steps, then windows of these sizes in steps, each logged, then `after` steps."""


@dataclass(frozen=True)
class Windows:
    """The windows of a whole training that is not paced by turns; the warm-up only of one that is."""

    warmup: tuple[Window, ...]
    timed: tuple[Window, ...] = ()


def train(
    loop: Loop,
    log: WindowLog,
    spec: TrainingSpec,
    report: Callable[[Windows, bool], None],
    after_turn: Callable[[WindowLog], None] | None = None,
) -> None:
    """Train as long as the launcher releases turns; without turns, the steps of `spec`.

    Args:
        loop: the steps.
        log: a fresh one.
        spec: of the training.
        report: sends the record of this task: before the first turn (False), and at the end (True).
        after_turn: see `take_turns`.
    """
    if events.in_turns():
        log.quiet = True
        loop.windows((1, OPENING_STEPS * _at_once(loop, spec)), log)
        opening = Windows(log.take())
        report(opening, False)
        # of a concurrent loop all steps may be in the first window, which has the time of the trace, too
        seconds = step_s(opening.warmup[1:] or opening.warmup) * loop.concurrent
        take_turns(loop, log, seconds, spec.steps_per_call, after_turn)
        report(opening, True)
    else:
        report(_train_steps(loop, log, spec), True)


def take_turns(
    loop: Loop,
    log: WindowLog,
    seconds: float,
    per_call: int = 1,
    after_turn: Callable[[WindowLog], None] | None = None,
) -> None:
    """Train every turn that the launcher releases. Arguments as for `turns`.

    `after_turn` is called after the windows of each turn, outside of them: it may add to `log.observed`.
    """
    for turn in turns(log, loop.concurrent, seconds, per_call):
        with tracing(turn.trace):
            loop.windows(turn.sizes, log, turn.before, turn.after)
        if after_turn is not None:
            after_turn(log)


@dataclass(frozen=True)
class TurnPlan:
    """The arguments of `Loop.windows` for one turn."""

    sizes: tuple[int, ...]
    before: int
    after: int
    trace: str = ""
    """`events.Turn.trace`."""


def turns(log: WindowLog, concurrent: int, seconds: float, per_call: int = 1) -> Iterator[TurnPlan]:
    """Wait for each release and yield the turn, which must then be trained and logged, until there is none.

    Args:
        log: without windows.
        concurrent: as `Loop.concurrent`.
        seconds: in which `concurrent` steps are done; of steps that are not concurrent, one.
        per_call: steps of a call; windows are rounded up to whole calls, and are fewer then.
    """
    while (turn := events.wait_at_barrier(step_s=seconds)) is not None and turn.windows:
        yield _plan(turn, concurrent, per_call)
        windows = log.take()
        observed = log.take_observed()
        rest = {"observed": observed} if observed else {}
        events.emit("turn", windows=[asdict(window) for window in windows], **rest)
        seconds = step_s(windows) * concurrent if windows else seconds


def _plan(turn: Turn, concurrent: int, per_call: int) -> TurnPlan:
    # A concurrent loop needs work on all workers at both edges; any other one only lets its first step pass.
    before, after = (concurrent * per_call, concurrent * per_call) if concurrent > 1 else (1, 0)
    size = whole_calls(turn.steps, per_call)
    windows = max(1, round(turn.windows * turn.steps / size))  # the turn keeps its length
    return TurnPlan((size * concurrent,) * windows, before, after, turn.trace)


def _train_steps(loop: Loop, log: WindowLog, spec: TrainingSpec) -> Windows:
    log.total = spec.steps
    plan = schedule(spec, _at_once(loop, spec) if loop.overlaps else 0)
    if plan.warmup:
        loop.windows(plan.warmup, log)
    warmup = log.take()
    events.wait_at_barrier()
    loop.windows(plan.timed, log, plan.before, plan.after)
    if log.steps < spec.steps:
        events.emit("step", step=spec.steps, steps=spec.steps)
    return Windows(warmup, log.take())


def _at_once(loop: Loop, spec: TrainingSpec) -> int:
    """Steps of the calls that run at the same time; 1 of a loop that runs one call after the other."""
    return loop.concurrent * spec.steps_per_call if loop.concurrent > 1 else 1
