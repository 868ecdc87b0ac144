"""The steps of a training and its windows: those of its spec, or turns that the launcher releases. No TensorFlow."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from tfdist.launch import events
from tfdist.launch.agent_program.optional import trim_heap
from tfdist.models.record import Window
from tfdist.models.spec import TrainingSpec, calls, whole_calls
from tfdist.models.training.windows import WindowLog, step_s

WINDOW_S = 1.0
"""Longest window of a training that is saved, if a step is not longer: a checkpoint that a signal requests waits for
the end of a window."""


@dataclass(frozen=True)
class Schedule:
    """Sizes in steps, which sum to `spec.steps`."""

    warmup: tuple[int, ...]
    """The first window is the first step alone, with its tracing."""
    margin: int
    """Steps without a window, which are queued before the first timed one, and again behind the last one."""
    timed: tuple[int, ...]


def schedule(spec: TrainingSpec, margin: int = 0) -> Schedule:
    """Windows of `spec.steps_per_window` steps; smaller ones if the timed steps would not fill two.

    All but the last ones are whole calls of `spec.steps_per_call` steps.

    Args:
        spec: its `warmup_steps` are trained first, but at most half of all steps.
        margin: steps without a window before and after the timed ones, if at least as many are left to be timed.
    """
    warm = min(spec.warmup_steps, spec.steps // 2)
    left = spec.steps - warm
    margin = margin if left >= 4 * margin else 0
    timed = left - 2 * margin
    size = whole_calls(max(1, min(spec.steps_per_window, timed // 2)), spec.steps_per_call)
    first = (1,) if warm else ()
    return Schedule((*first, *calls(warm - len(first), size)), margin, calls(timed, size))


def total_steps(spec: TrainingSpec, step: int, examples: int, batch: int) -> int:
    """The steps of a training that has trained `examples` examples in `step` steps and continues with this batch.

    They are those of `spec`, or as many as its number of examples needs.
    """
    return spec.steps if spec.examples is None else step + max(0, -(-(spec.examples - examples) // batch))


def saved_warmup(spec: TrainingSpec, step: int, every: int | None) -> tuple[int, ...]:
    """The warm-up windows of a training that is saved and continues at `step`: short, so that their edges come soon."""
    warm = max(0, min(spec.warmup_steps, (spec.steps - step) // 2))
    if not warm:
        return ()
    return (1, *_between(step + 1, step + warm, whole_calls(2, spec.steps_per_call), every))


def saved_windows(spec: TrainingSpec, step: int, every: int | None, step_s: float | None) -> tuple[int, ...]:
    """Timed windows from `step` to the last step, of at most WINDOW_S, which end at each multiple of `every`.

    Args:
        spec: of the training.
        step: trained so far.
        every: steps from one checkpoint to the next one; None: at any edge.
        step_s: seconds of a step; None: unknown.
    """
    most = max(1, int(WINDOW_S / step_s)) if step_s else spec.steps_per_window
    size = _dividing(whole_calls(min(spec.steps_per_window, most), spec.steps_per_call), every, spec.steps_per_call)
    return _between(step, spec.steps, size, every)


def _between(step: int, stop: int, size: int, every: int | None) -> tuple[int, ...]:
    """Windows of at most `size` steps from `step` to `stop` that end at each multiple of `every`."""
    sizes: list[int] = []
    while step < stop:
        edge = stop if every is None else min(stop, (step // every + 1) * every)
        sizes += calls(edge - step, size)
        step = edge
    return tuple(sizes)


def _dividing(size: int, every: int | None, per_call: int) -> int:
    """The nearest smaller size that divides `every`, for windows of equal size; `size` if it would be under half."""
    if every is None:
        return size
    return next((each for each in range(size, size // 2, -1) if every % each == 0 == each % per_call), size)


def segments(sizes: Sequence[int], step: int, every: int | None, least: int) -> list[tuple[int, ...]]:
    """The windows from `step` on in groups of at least `least` steps, which end at each multiple of `every`."""
    groups: list[tuple[int, ...]] = []
    group: tuple[int, ...] = ()
    for size in sizes:
        group = (*group, size)
        step += size
        if sum(group) >= least or (every is not None and step % every == 0):
            groups.append(group)
            group = ()
    return [*groups, group] if group else groups


SEGMENT_S = 2.0
"""Seconds between two moments at which an asynchronous job waits for all scheduled steps, so that it can be saved."""


@contextmanager
def tracing(folder: str) -> Iterator[None]:
    """Profile this process into a folder of this task in `folder`; nothing if that is empty.

    A profiler that fails is a warning: the turns that were measured before must not be lost.
    """
    if not folder:
        yield
        return
    import tensorflow as tf

    own = Path(folder) / os.environ.get("TFDIST_TASK", "worker-0")
    started = False
    try:
        own.mkdir(parents=True, exist_ok=True)
        tf.profiler.experimental.start(str(own))
        started = True
    except Exception as error:
        _warn(error)
    yield
    if started:
        try:
            tf.profiler.experimental.stop()
        except Exception as error:
            _warn(error)


def _warn(error: Exception) -> None:
    sys.stderr.write(f"tfdist: no trace: {type(error).__name__}: {error}\n")


OPENING_STEPS = 4
"""Steps between the first step and the first turn: the same in all arms, so that their losses can be compared."""


TRIES = (1, 2, 4, 8)
"""Times the length of a turn until it has a window: a chief without a core counts its steps before it reads a clock."""


TRACE_VARIABLE = "TFDIST_TRACE_DIR"
"""The folder for a trace of the last steps of the warm-up, under tf.profiler."""


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
        after_turn: called after the windows of each turn, outside of them: it may add to `log.observed`.
    """
    if events.in_turns():
        log.quiet = True
        loop.windows((1, OPENING_STEPS * _at_once(loop, spec)), log)
        opening = Windows(log.take())
        report(opening, False)
        # of a concurrent loop all steps may be in the first window, which has the time of the trace, too
        seconds = step_s(opening.warmup[1:] or opening.warmup) * loop.concurrent
        for turn in turns(log, loop.concurrent, seconds, spec.steps_per_call):
            with tracing(turn.trace):
                for factor in TRIES:
                    loop.windows(tuple(factor * size for size in turn.sizes), log, turn.before, turn.after)
                    if log.windows:
                        break
            if after_turn is not None:
                after_turn(log)
        report(opening, True)
    else:
        report(_train_steps(loop, log, spec), True)


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
    while (turn := _parked(seconds)) is not None and turn.windows:
        yield _plan(turn, concurrent, per_call)
        windows = log.take()
        rest = {"observed": log.observed} if log.observed else {}
        log.observed = {}
        events.emit("turn", windows=[asdict(window) for window in windows], **rest)
        seconds = step_s(windows) * concurrent if windows else seconds


def _parked(step_s: float) -> events.Turn | None:
    """Wait for a turn, without the memory that glibc keeps for later allocations: the other arms may need it."""
    trim_heap()
    return events.wait_at_barrier(step_s=step_s)


def _plan(turn: events.Turn, concurrent: int, per_call: int) -> TurnPlan:
    # A concurrent loop needs work on all workers at both edges; any other one only lets its first step pass.
    before, after = (concurrent * per_call, concurrent * per_call) if concurrent > 1 else (1, 0)
    size = whole_calls(turn.steps, per_call)
    windows = max(1, round(turn.windows * turn.steps / size))  # the turn keeps its length
    return TurnPlan((size * concurrent,) * windows, before, after, turn.trace)


def _train_steps(loop: Loop, log: WindowLog, spec: TrainingSpec) -> Windows:
    log.total = spec.steps
    plan = schedule(spec, _at_once(loop, spec) if loop.overlaps else 0)
    _warm_up(plan.warmup, lambda sizes: loop.windows(sizes, log))
    warmup = log.take()
    events.wait_at_barrier()
    loop.windows(plan.timed, log, plan.margin, plan.margin)
    if log.steps < spec.steps:
        events.emit("step", step=spec.steps, steps=spec.steps)
    return Windows(warmup, log.take())


def _warm_up(sizes: Sequence[int], train: Callable[[Sequence[int]], None]) -> None:
    """Train the windows of the warm-up; the last one under tf.profiler, if the launcher wants a trace."""
    folder = os.environ.get(TRACE_VARIABLE, "")
    traced = sizes[1:][-1:] if folder else ()
    if untraced := sizes[: len(sizes) - len(traced)]:
        train(untraced)
    if traced:
        with tracing(folder):
            train(traced)


def _at_once(loop: Loop, spec: TrainingSpec) -> int:
    """Steps of the calls that run at the same time; 1 of a loop that runs one call after the other."""
    return loop.concurrent * spec.steps_per_call if loop.concurrent > 1 else 1


class Edges(Protocol):
    """Saves at the edges of windows."""

    @property
    def step_s(self) -> float | None:
        """Seconds of a step lately, the same on all ranks; None: unknown."""

    def at_edge(self, step: int) -> bool:
        """Save if it is time to; returns whether it took time."""


def train_saved(
    loop: Loop, log: WindowLog, spec: TrainingSpec, step: int, every_steps: int | None, edges: Edges
) -> Windows:
    """Train from `step` to `spec.steps`, without turns.

    Args:
        loop: the steps.
        log: a fresh one.
        spec: of the training.
        step: trained before.
        every_steps: the steps after which `edges` must be called, at multiples of it; None: at any.
        edges: called at the edges of windows.
    """
    log.total, log.steps = spec.steps, step
    warmup = saved_warmup(spec, step, every_steps)
    _warm_up(warmup, lambda sizes: _windows(loop, log, sizes, every_steps, edges))
    warm = log.take()
    events.wait_at_barrier()
    _windows(loop, log, saved_windows(spec, step + sum(warmup), every_steps, edges.step_s), every_steps, edges)
    if not log.opened_at:  # the checkpoint is the last one
        log.open()
        log.first_step()
    return Windows(warm, log.take())


def _windows(loop: Loop, log: WindowLog, sizes: Sequence[int], every: int | None, edges: Edges) -> None:
    if not loop.overlaps:
        log.at_edge = edges.at_edge
        if sizes:
            loop.windows(sizes, log)
        return
    least = max(1, int(SEGMENT_S / edges.step_s)) if edges.step_s else 1
    step = log.steps
    for segment in segments(sizes, step, every, least):
        loop.windows(segment, log)
        step += sum(segment)
        if log.steps < step:  # windows whose steps were counted before are dropped
            events.emit("step", step=step, steps=log.total)
        log.steps = step
        edges.at_edge(step)
