"""Figures, units, short names of folders and data frames as text. Pure."""

import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import ArmVerdict, Comparison, Interval
from tfdist.bench.table import EMPTY, Column, Table
from tfdist.launch.text import spreadsheet_text

if TYPE_CHECKING:
    import pandas as pd

_NAME = re.compile(r"\A(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)\d\dZ-(.+)\Z")
"""Names of folders of `tfdist bench`: 20260101T120000Z-cpu."""
_LABELS = (r"\6", r"\6 \1-\2-\3", r"\6 \4h\5", r"\6 \1-\2-\3 \4h\5", r"\g<0>")
"""The shortest first: `cpu`, `cpu 2026-01-01`, `cpu 12h00`, `cpu 2026-01-01 12h00`, the whole name."""


def labels_of(roots: Sequence[Path]) -> list[str]:
    """Unique labels: of the folders of benches the suite, then its day or time (UTC), as far as they differ.

    Any other folder is named as it is; if two names are equal, all by their paths below the common parent.
    """
    names = [root.resolve().name for root in roots]
    for form in _LABELS:
        labels = [_NAME.sub(form, name) for name in names]
        if len(set(labels)) == len(labels):
            return labels
    paths = [str(root.resolve()) for root in roots]
    common = os.path.commonpath(paths)
    return [os.path.relpath(path, common) for path in paths]


_NUMBER = r"[-+]?[\d,]*\.?\d+(e[-+]?\d+)?"
_FIGURE = re.compile(rf"{_NUMBER}( ?%|x)?( (to|of) {_NUMBER}( ?%|x)?)?", re.IGNORECASE)
"""Figures such as `90.9`, `76%`, `1.2 to 1.4`, `12 of 12`."""


def figure_columns(table: Table) -> list[bool]:
    """Whether all cells of each column are figures or missing, and not all missing."""
    cells = ({line[index] for line in table.lines} - {EMPTY} for index in range(len(table.shown_columns)))
    return [bool(each) and all(map(_FIGURE.fullmatch, each)) for each in cells]


def for_unit(columns: Iterable[Column], rows: Sequence[ArmRow]) -> list[Column]:
    """The columns with their titles as `in_unit` has them."""
    return [replace(column, title=in_unit(column.title, rows)) for column in columns]


def in_unit(text: str, rows: Iterable[ArmRow]) -> str:
    """`text` about these rows with `examples/s` in place of `images/s` if all of them ran the user's own program."""
    specs = [record.spec for row in rows for record in row.records]
    if not specs or not all(spec.get("command") for spec in specs):
        return text
    return re.sub(r"\b([Ii])mages(?=/s| per )", lambda found: ("Ex" if found[1] == "I" else "ex") + "amples", text)


def ends(name: str, value: Interval | None) -> dict[str, float | None]:
    """The values NAME_low and NAME_high of a row; None: no interval."""
    return {f"{name}_low": value.low if value else None, f"{name}_high": value.high if value else None}


def between(value: Interval | None, form: str) -> str:
    """` (1.2 to 1.4)`, after a figure; empty: no interval."""
    return f" ({value.low:{form}} to {value.high:{form}})" if value else ""


def three_digits(value: float) -> str:
    """A figure in a sentence: `0.997`, `1.49`, `66.6`, `176` or `2,340`."""
    if not math.isfinite(value):
        return str(value)
    rounded = float(f"{value:.3g}")
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded)))) if rounded else 2
    return f"{rounded:,.{decimals}f}"


def span(values: Iterable[float]) -> str:
    """`168 to 176`, of the lowest and the highest value; one figure if they do not differ in three digits."""
    known = list(values)
    return " to ".join(dict.fromkeys((three_digits(min(known)), three_digits(max(known)))))


def up_to(share: float) -> str:
    """`6 %` of a share: a limit, so it is rounded up."""
    return f"{math.ceil(round(100 * max(0.0, share), 6))} %"


def difference(comparison: Comparison) -> str:
    """`measurably faster`, `measurably slower`, `no measurable difference`, or that there is no interval."""
    if comparison.interval is None:
        return "too few rounds for a verdict"
    unsure = comparison.verdict is ArmVerdict.CANNOT_TELL
    return "no measurable difference" if unsure else f"measurably {comparison.verdict}"


def to_csv(table: "pd.DataFrame") -> str:
    """Six significant digits; a missing value is an empty cell. Texts that a spreadsheet would compute begin with '."""

    def as_text(cell: Any) -> Any:
        return spreadsheet_text(cell) if isinstance(cell, str) else cell

    texts = {name: table[name].map(as_text) for name in table.select_dtypes(["object", "string"])}
    text: str = table.assign(**texts).to_csv(index=False, float_format="%.6g", lineterminator="\n")
    return text
