"""A folder of results whose texts are all hostile."""

import json
import shutil
from enum import Enum
from pathlib import Path
from typing import Any

from tfdist.models.collectives.spec import CollectiveSpec
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import field_types

TEXTS = {
    "html": "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "formula": r"$\frac{$",
    "escape": "\x1b]0;title\x07\x1b[31m\x9b2J\u202e\udc80",
    "newline": "a\n\n# b\r\n",
    "long": "x" * 100_000,
    "markdown": "# `|` | ** [link](javascript:alert(3)) ![](x) _a_ `",
    "spreadsheet": "=1+1[red]",
}
_TYPES = {**field_types(TrainingSpec), **field_types(CollectiveSpec)}
_CHOICES = {"format", "status", "dtype", "op", *(name for name, kind in _TYPES.items() if issubclass(kind, Enum))}
_CHOICES |= {"scaling", "preset", "variable_partitioner"}
_FREE_NAMES = {"software", "environment", "cpu_s", "windows", "observed", "packages", "not_measured"}
"""Objects with names that somebody else has chosen."""


def spoil(source: Path, target: Path, text: str) -> Path:
    """Copy the records in `source`, with `text` before every text that is not one of a few choices."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.png", "*.csv", "report.*"))
    for path in [*target.rglob("*.json"), *target.rglob("*.jsonl")]:
        values = map(json.loads, path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()])
        path.write_text("\n".join(json.dumps(_spoilt(each, text)) for each in values) + "\n")
    return target


def _spoilt(value: Any, text: str, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in _CHOICES else text + value
    if isinstance(value, list):
        return [_spoilt(item, text, key) for item in value]
    if isinstance(value, dict):
        prefix = text if key in _FREE_NAMES else ""
        return {prefix + name: _spoilt(item, text, name) for name, item in value.items()}
    return value
