"""What Bencher and github-action-benchmark demand of the files that they read, from their sources."""

import re
from typing import Any

from jsonschema import Draft202012Validator

_NUMBER = {"type": "number"}
BENCHER = {
    "type": "object",
    "propertyNames": {"minLength": 1, "maxLength": 1024},
    "additionalProperties": {
        "type": "object",
        "propertyNames": {"pattern": r"^\S(.{0,62}\S)?$"},
        "additionalProperties": {
            "type": "object",
            "properties": {"value": _NUMBER, "lower_value": _NUMBER, "upper_value": _NUMBER},
            "required": ["value"],
            "additionalProperties": False,
        },
    },
}
"""Benchmark -> measure -> metric, as the adapter `json` of Bencher 0.6 reads them.

Lengths are of `BenchmarkName` (UTF-8 bytes, as `load_bencher` counts them) and `ResourceName` in its lib/bencher_valid.
"""
_TEXT = {"type": "string", "minLength": 1}
GITHUB = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "properties": {"name": _TEXT, "unit": _TEXT, "value": _NUMBER, "range": _TEXT, "extra": _TEXT},
        "required": ["name", "unit", "value"],
        "additionalProperties": False,
    },
}
"""`BenchmarkResult` in src/extract.ts of github-action-benchmark 1.22, without its conversions: it takes null as 0."""


def load_bencher(values: Any) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Benchmark -> measure -> value and its limits, which are the value if there are none."""
    Draft202012Validator(BENCHER).validate(values)
    assert max(len(name.encode()) for name in values) <= 1024
    return {
        name: {
            measure: (each["value"], each.get("lower_value", each["value"]), each.get("upper_value", each["value"]))
            for measure, each in measures.items()
        }
        for name, measures in values.items()
    }


def load_github(values: Any) -> dict[str, tuple[float, float]]:
    """Value and half its interval, 0 if there is none, by name. Its next run finds an entry by the name alone."""
    Draft202012Validator(GITHUB).validate(values)
    names = [each["name"] for each in values]
    assert len(set(names)) == len(names)
    return {each["name"]: (each["value"], _half(each.get("range"))) for each in values}


def _half(text: str | None) -> float:
    """The number after the sign in `range`; the dashboard shows another text as it is (src/extractRangeInfo.ts)."""
    if text is None:
        return 0.0
    found = re.fullmatch(r"(?:\+-|±)\s*(\d.*)", text)
    assert found, text
    return float(found[1])
