"""JSON Schemas of what tfdist writes, from the types of its records: python -m lab.schemas writes docs/schemas/.

A test compares them with the types, and validates what real commands have written.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

from tfdist.bench.report.build import FORMAT as REPORT_FORMAT
from tfdist.launch.agents.inbox import Message
from tfdist.launch.agents.messages import Heartbeat, Inspected, Output
from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.typed_json import Between, Has, MaxLength
from tfdist.models.record import FORMAT as RECORD_FORMAT
from tfdist.models.record import Record, TurnRecord

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}
NOT_WRITTEN = (Output, Heartbeat, Inspected)
"""Messages that are not in events.jsonl: output has logs of its own."""


class _Chart(TypedDict):
    name: str
    title: str
    alt: str
    data: str


class _Table(TypedDict):
    name: str
    title: str
    rows: tuple[Mapping[str, str | float | bool | None], ...]


class _Section(TypedDict):
    key: str
    title: str
    answer: tuple[str, ...]
    charts: tuple[_Chart, ...]
    tables: tuple[_Table, ...]
    notes: tuple[str, ...]


class _Report(TypedDict):
    """What `Report.to_json` returns."""

    title: str
    headline: tuple[str, ...]
    sure_to: tuple[float | None, ...]
    """Of each folder: smaller differences, as a share, may be noise; null: unknown, or nothing was compared."""
    scaling: str
    rows: tuple[Mapping[str, str | float | bool | None], ...]
    same_arms: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    sections: tuple[_Section, ...]
    warnings: tuple[Mapping[str, Any], ...]
    environment: Mapping[str, tuple[str, ...]]
    commands: tuple[str, ...]
    unreadable: tuple[Mapping[str, Any], ...]


class _ReportFile(_Report, total=False):
    files: tuple[str, ...]
    """Names beside it; not in what --json prints."""


@cache
def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of values of a type, as `typed_json.from_json` reads them; floats also accept integers."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if kind is Any:
        return {}
    if kind in SIMPLE:
        return {"type": SIMPLE[kind]}
    if origin is Annotated:
        return {**schema_of(arguments[0]), **_limits(arguments[1])}
    if origin in (Union, UnionType):
        return _any_of([schema_of(each) for each in arguments])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        if arguments[1:] == (...,):
            return {"type": "array", "items": schema_of(arguments[0])}
        return {"type": "array", "prefixItems": [schema_of(each) for each in arguments], "items": False}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [each.value for each in kind]}
    if is_dataclass(kind) or is_typeddict(kind):
        return _object(kind)
    raise TypeError(kind)


def _limits(rule: Any) -> dict[str, Any]:
    if isinstance(rule, Between):
        return {"minimum": rule.low, "maximum": rule.high}
    if isinstance(rule, MaxLength):
        return {"maxLength": rule.characters}
    return _object(rule.kind) if isinstance(rule, Has) else {}


def _any_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    if all(option.keys() == {"type"} for option in options):
        return {"type": [option["type"] for option in options]}
    return {"anyOf": options}


def _object(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    if is_typeddict(kind):
        names = list(hints)
        required = sorted(kind.__required_keys__)
    else:
        names = [each.name for each in fields(kind)]
        required = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
    return {"type": "object", "properties": {name: schema_of(hints[name]) for name in names}, "required": required}


def _versioned(name: str, title: str, number: int, kind: Any) -> dict[str, Any]:
    found = schema_of(kind)
    return {
        "$schema": DIALECT,
        "$id": f"{name}.schema.json",
        "title": title,
        **found,
        "properties": {"format": {"const": number}, **found["properties"]},
        "required": ["format", *found["required"]],
    }


def _events() -> dict[str, Any]:
    kinds = [kind for kind in get_args(Message) if kind not in NOT_WRITTEN]
    lines = []
    for kind in sorted(kinds, key=lambda kind: kind.__name__):
        found = schema_of(kind)
        properties = {"format": {"const": 1}, "kind": {"const": kind.__name__}, **found["properties"]}
        required = ["format", "kind", *found["required"]]
        lines.append({"title": kind.__name__, "type": "object", "properties": properties, "required": required})
    refused = {
        "format": {"const": 1},
        "kind": {"const": "Refused"},
        "host": {"type": "string"},
        "message": {"type": "string"},
    }
    lines.append({"title": "Refused", "type": "object", "properties": refused, "required": list(refused)})
    return {"$schema": DIALECT, "$id": "events.schema.json", "title": "A line of events.jsonl", "oneOf": lines}


def schemas() -> dict[str, dict[str, Any]]:
    """Each schema by the name of its file."""
    outcome = _versioned("outcome", "outcome.json of a run whose tasks were started", 1, Outcome)
    del outcome["properties"]["records"]  # records.jsonl has them
    return {
        "outcome.schema.json": outcome,
        "records.schema.json": _versioned("records", "A line of records.jsonl", RECORD_FORMAT, Record),
        "turns.schema.json": _versioned("turns", "A line of turns.jsonl", RECORD_FORMAT, TurnRecord),
        "report.schema.json": _versioned("report", "report.json", REPORT_FORMAT, _ReportFile),
        "events.schema.json": _events(),
    }


def main() -> None:
    """Write them."""
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / name).write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
