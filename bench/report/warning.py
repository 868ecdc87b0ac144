"""A problem of the figures of a report."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Warning:
    """A problem of the figures, and how to avoid it."""

    code: str
    text: str
    advice: str


def listed(arms: Sequence[str], measured: int) -> str:
    """The names of the arms that a warning is about; `all arms` if they are all of several `measured` ones."""
    return "all arms" if len(arms) == measured > 1 else ", ".join(arms)
