"""Hardware and software of the records: each fact once, with all its values. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from tfdist.models.record import Record

_OMITTED = ("host", "packages")
"""Keys of Record.hardware that do not affect speed, differ in every run, or are reported as software."""


def environment_of(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    """Fact -> its distinct values, in the order of the records."""
    facts: dict[str, dict[str, None]] = {}
    for fact, value in chain.from_iterable(map(_facts, records)):
        if value:
            facts.setdefault(fact, {})[value] = None
    return {fact: tuple(values) for fact, values in facts.items()}


def _facts(record: Record) -> Iterator[tuple[str, str]]:
    for key, value in record.hardware.items():
        if key == "cores":
            yield "cores", str(len(value))
        elif key == "memory_bytes":
            yield "memory", f"{value / 1e9:.1f} GB"
        elif key not in _OMITTED:
            yield key, _formatted(value)
    if not record.ranks:  # no task reported its software: list what is installed
        yield from record.hardware.get("packages", {}).items()
    for rank in record.ranks:
        yield from rank.software.items()
    yield "git commit", record.git_commit
    for rank in record.ranks:
        yield from ((f"variable {name}", value) for name, value in sorted(rank.environment.items()))


def _formatted(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_formatted(item)}" for key, item in value.items())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(_formatted, value)) or "none"
    return str(value)
