"""Rows -> pandas -> CSV and Markdown."""

from collections.abc import Iterable, Sequence

import pandas as pd

from tfdist.bench.report.columns import COLUMNS, columns_of, values_of
from tfdist.bench.report.summary import ArmRow


def frame(rows: Sequence[ArmRow], scaling: str) -> pd.DataFrame:
    """One row per arm, each figure in the unit of its column name; missing: not measured."""
    table: pd.DataFrame = pd.DataFrame([values_of(row, scaling) for row in rows]).convert_dtypes()
    return table


def to_csv(table: pd.DataFrame) -> str:
    """Six significant digits; a missing value is an empty cell."""
    return table.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def to_markdown(rows: Sequence[ArmRow]) -> str:
    """The table of report.md."""
    names = columns_of(rows)
    lines = [_line(names), _line("---" if name in _TEXT else "--:" for name in names)]
    return "\n".join([*lines, *(_line(COLUMNS[name](row) for name in names) for row in rows)]) + "\n"


_TEXT = ("arm", "kind", "sync or async", "against one device", "status", "link")


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(cell: object) -> str:
    """One line with pipes escaped, so that it stays in its cell."""
    return " ".join(str(cell).split()).replace("|", "\\|")
