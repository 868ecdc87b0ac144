"""A problem of the figures of a report."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Warning:
    """A problem of the figures, and how to avoid it."""

    code: str
    text: str
    advice: str
