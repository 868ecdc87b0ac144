"""Numbers and lists of names in messages."""

from collections.abc import Iterable


def shortened(names: Iterable[str], most: int = 4) -> str:
    """`a, b, c`, each name once; of more than `most` the first ones and how many more: `a, b, c, d and 5 more`."""
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def counted(number: int, noun: str) -> str:
    """`1 round`, `3 rounds`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
