"""A table: a data frame with exact values, and the columns that readers see of it. Needs no pandas until it is read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

EMPTY = "-"
"""What readers see of a missing value."""


@dataclass(frozen=True)
class Column:
    """One column that readers see, made of the values of a row."""

    title: str
    """Title with its unit."""
    keys: tuple[str, ...]
    """Names of the values."""
    form: str | Callable[..., str] = "{}"
    """How they are formatted: `{:.1f} to {:.1f}`, a dash if one is missing; or their text, where None is missing."""

    def text(self, row: Mapping[Any, Any]) -> str:
        """The text of its cell."""
        values = [row[key] for key in self.keys]
        if callable(self.form):
            return self.form(*values)
        return EMPTY if None in values else self.form.format(*values)


STATUS = Column("status", ("status", "reason"), lambda status, reason: f"{status}: {reason}" if reason else status)


def with_interval(text: Callable[[float], str]) -> Callable[..., str]:
    """The text for a value and the ends of its interval: `40.0 (38.1 to 41.9)`, or `40.0` without.

    Args:
        text: of one value.
    """

    def form(value: float | None, low: float | None, high: float | None) -> str:
        if value is None:
            return EMPTY
        return text(value) if low is None or high is None else f"{text(value)} ({text(low)} to {text(high)})"

    return form


@dataclass(frozen=True)
class Table:
    """One table."""

    name: str
    """Part of a file name: NAME.csv."""
    title: str
    data: "pd.DataFrame"
    """The exact values, units in the names of columns."""
    columns: Sequence[Column] = ()
    """What readers see of them; empty: every value as it is."""

    @cached_property
    def _rows(self) -> "list[dict[Any, Any]]":
        rows: list[dict[Any, Any]] = self.data.astype(object).where(self.data.notna(), None).to_dict("records")
        return rows

    @cached_property
    def shown_columns(self) -> Sequence[Column]:
        """What readers see: the columns that have a value in some row."""
        columns = self.columns or [Column(str(key), (str(key),)) for key in self.data]
        return [each for each in columns if not self._rows or any(each.text(row) != EMPTY for row in self._rows)]

    @cached_property
    def lines(self) -> list[list[str]]:
        """The text of each row's cells."""
        return [[" ".join(column.text(row).split()) for column in self.shown_columns] for row in self._rows]

    @property
    def rows(self) -> list[dict[str, str]]:
        """The text of each row's cells by the column's title."""
        titles = [column.title for column in self.shown_columns]
        return [dict(zip(titles, line, strict=True)) for line in self.lines]
