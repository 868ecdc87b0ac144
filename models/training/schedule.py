"""The windows of a training that is not paced by turns. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tfdist.models.calls import calls, whole_calls
from tfdist.models.spec import TrainingSpec

WINDOW_S = 1.0
"""Longest window of a training that is saved, if a step is not longer: a checkpoint that a signal requests waits for
the end of a window."""


@dataclass(frozen=True)
class Schedule:
    """Sizes in steps, which sum to `spec.steps`."""

    warmup: tuple[int, ...]
    """The first window is the first step alone, with its tracing."""
    before: int
    """Steps without a window, which are queued before the first timed one."""
    timed: tuple[int, ...]
    after: int
    """Steps without a window, which are queued behind the last timed one."""


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
    return Schedule((*first, *calls(warm - len(first), size)), margin, calls(timed, size), margin)


def total_steps(spec: TrainingSpec, step: int, examples: int, batch: int) -> int:
    """The steps of a training that has trained `examples` examples in `step` steps and continues with this batch.

    They are those of `spec`, or as many as its number of examples needs.
    """
    return spec.steps if spec.examples is None else step + max(0, -(-(spec.examples - examples) // batch))


def saved_warmup(spec: TrainingSpec, step: int, every: int | None) -> tuple[int, ...]:
    """The warm-up windows of a training that is saved and continues at `step`: short, so that their edges come soon."""
    warm = min(spec.warmup_steps, (spec.steps - step) // 2)
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
    candidates = range(size, size // 2, -1) if every is not None else ()
    return next((each for each in candidates if every is not None and every % each == 0 == each % per_call), size)


def segments(sizes: Sequence[int], step: int, every: int | None, least: int) -> list[tuple[int, ...]]:
    """The windows from `step` on in groups of at least `least` steps, which end at each multiple of `every`."""
    groups: list[tuple[int, ...]] = []
    group: tuple[int, ...] = ()
    for size in sizes:
        group, step = (*group, size), step + size
        if sum(group) >= least or (every is not None and step % every == 0):
            groups.append(group)
            group = ()
    return [*groups, group] if group else groups
