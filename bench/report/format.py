"""Figures as text for readers."""

from tfdist.bench.statistics import Interval

EMPTY = "-"


def number(value: float | None, form: str) -> str:
    """The text by a format specification; a dash for None."""
    return EMPTY if value is None else format(value, form)


def interval(value: Interval | None, form: str) -> str:
    """`1.2 to 1.4`."""
    return EMPTY if value is None else f"{value.low:{form}} to {value.high:{form}}"
