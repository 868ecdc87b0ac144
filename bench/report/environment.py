"""Where the records were made: each fact once, with every value it had. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfdist.models.record import BUSY_BEFORE, Record

_LEFT_OUT = ("host", "packages", BUSY_BEFORE)
"""Keys of Record.hardware that say nothing about speed or differ in every run; packages are told otherwise."""


def environment_of(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """Fact -> its distinct values, in the order in which they were met."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for fact, value in _facts(record):
            if value:
                found.setdefault(fact, {})[value] = None
    return {fact: tuple(values) for fact, values in found.items()}


def _facts(record: Record) -> Iterator[tuple[str, str]]:
    yield from _hardware(record.hardware)
    if not record.ranks:  # what was installed, where no task could say what it used
        yield from record.hardware.get("packages", {}).items()
    for rank in record.ranks:
        yield from rank.software.items()
    yield "git commit", record.git_commit
    for rank in record.ranks:
        yield from ((f"variable {name}", value) for name, value in sorted(rank.environment.items()))


def _hardware(hardware: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in hardware.items():
        if key == "cores":
            yield "cores", str(len(value))
        elif key == "memory_bytes":
            yield "memory", f"{value / 1e9:.1f} GB"
        elif key not in _LEFT_OUT:
            yield key, _in_words(value)


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_in_words(item)}" for key, item in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(_in_words, value)) or "none"
    return str(value)
