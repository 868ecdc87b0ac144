"""Which columns of a table of text are figures: those are aligned to the right, and sorted by value. Pure."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfdist.bench.report.format import EMPTY

if TYPE_CHECKING:
    import pandas as pd

_NUMBER = r"[-+]?[\d,]*\.?\d+(e[-+]?\d+)?"
_FIGURE = re.compile(rf"{_NUMBER}( ?%|x)?( (to|of) {_NUMBER}( ?%|x)?)?", re.IGNORECASE)
"""Figures such as `90.9`, `76%`, `1.2 to 1.4`, `12 of 12`."""


def lines_of(shown: "pd.DataFrame") -> list[list[str]]:
    """The cells of each row, each on one line."""
    return [[" ".join(str(cell).split()) for cell in line] for line in shown.itertuples(index=False)]


def figure_columns(columns: int, lines: Sequence[Sequence[str]]) -> list[bool]:
    """Whether all cells of each column are figures or missing, and not all missing."""
    return [_figures({line[index] for line in lines} - {EMPTY}) for index in range(columns)]


def _figures(cells: set[str]) -> bool:
    return bool(cells) and all(_FIGURE.fullmatch(cell) for cell in cells)
