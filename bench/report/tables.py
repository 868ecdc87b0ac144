"""Rows -> pandas -> CSV and Markdown."""

from collections.abc import Iterable, Sequence

import pandas as pd

from tfdist.bench.report.columns import COLUMNS, columns_of, values_of
from tfdist.bench.report.cost_columns import cost_table
from tfdist.bench.report.summary import ArmRow


def frame(rows: Sequence[ArmRow], scaling: str, price_per_hour: float | None = None) -> pd.DataFrame:
    """One row per arm, each figure in the unit of its column name; missing: not measured."""
    table: pd.DataFrame = pd.DataFrame([values_of(row, scaling, price_per_hour) for row in rows]).convert_dtypes()
    return table


def to_csv(table: pd.DataFrame) -> str:
    """Six significant digits; a missing value is an empty cell."""
    return table.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def to_markdown(rows: Sequence[ArmRow]) -> str:
    """The first table of report.md."""
    names = columns_of(rows)
    return _table([names, *([COLUMNS[name](row) for name in names] for row in rows)])


def costs_to_markdown(rows: Sequence[ArmRow], price_per_hour: float | None) -> str:
    """The second table; empty if no arm was measured."""
    lines = cost_table(rows, price_per_hour)
    return _table(lines) if lines else ""


_TEXT = ("arm", "kind", "sync or async", "against one device", "status", "link", "GPU throttling")


def _table(lines: Sequence[Sequence[str]]) -> str:
    rule = ("---" if name in _TEXT else "--:" for name in lines[0])
    return "\n".join(_line(line) for line in (lines[0], list(rule), *lines[1:])) + "\n"


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(cell: object) -> str:
    """One line with pipes escaped, so that it stays in its cell."""
    return " ".join(str(cell).split()).replace("|", "\\|")
