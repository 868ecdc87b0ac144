"""The values of `step` and `evaluation` events, and their text."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class StepValues(NamedTuple):
    """A step; None: the event does not have the value."""

    step: int | None
    steps: int | None
    """The total."""
    images_per_s: float | None
    loss: float | None


def step_values(event: Mapping[str, Any]) -> StepValues:
    """The values of a `step` event of a task, which may hold anything."""
    return StepValues(
        _count(event.get("step")),
        _count(event.get("steps")) or None,
        _number(event.get("images_per_s")),
        _number(event.get("loss")),
    )


def evaluation_values(event: Mapping[str, Any]) -> tuple[int | None, float | None]:
    """The step and the accuracy, 0..1, of an `evaluation` event of a task, which may hold anything."""
    return _count(event.get("step")), _number(event.get("accuracy"))


def step_text(step: int | None, steps: int | None) -> str:
    """`20/100`, `20` without a total, empty without a step."""
    if step is None:
        return ""
    return f"{step}/{steps}" if steps else str(step)


def number_text(value: float | None, form: str) -> str:
    """The number in this format; empty if there is none."""
    return "" if value is None else format(value, form)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 2**63 else None


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:  # an int beyond the range of a float
        return None
