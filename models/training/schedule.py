"""The windows of a training that is not paced by turns. Pure."""

from dataclasses import dataclass

from tfdist.models.calls import calls, whole_calls
from tfdist.models.spec import TrainingSpec


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
