"""What a report shows, whatever its format: an answer, sections with charts and tables, warnings. Data, no layout.

Each format (Markdown, HTML, CSV, JSON) is written from the same sections.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Warning:
    """A problem of the figures, and how to avoid it."""

    code: str
    text: str
    advice: str


def listed(arms: Sequence[str], measured: int) -> str:
    """The names of the arms that a warning is about; `all arms` if they are all of several `measured` ones."""
    return "all arms" if len(arms) == measured > 1 else ", ".join(arms)


@dataclass(frozen=True)
class Chart:
    """One picture, and the numbers in it."""

    name: str
    """Part of file names: NAME.png, NAME.csv."""
    title: str
    alt: str
    """What it shows, with the figures that matter, for readers who do not see it."""
    paint: "Callable[[Axes], None]"
    """Draws it, in the colors of `colors.py`; no title."""
    data: "pd.DataFrame"
    """The raw data of the chart, units in the names of columns."""
    inches: float = 4.0
    """Height; its width is that of the page: 10 inches, or 4 on a phone."""
    caption: str = ""
    """A sentence below the title of the PNG, which is also shown without its report."""


EMPTY = "-"
"""What readers see of a missing value."""


@dataclass(frozen=True)
class Column:
    """One column that readers see, made of the values of a row."""

    title: str
    """With its unit."""
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


def _status_text(status: str, reason: str | None) -> str:
    return f"{status}: {reason}" if reason else status


STATUS = Column("status", ("status", "reason"), _status_text)


def with_interval(text: str | Callable[[float], str]) -> Callable[..., str]:
    """The text for a value and the ends of its interval: `40.0 (38.1 to 41.9)`, or `40.0` without.

    Args:
        text: of one value, or a template as `{:.1f}`.
    """
    shown = text.format if isinstance(text, str) else text

    def form(value: float | None, low: float | None, high: float | None) -> str:
        if value is None:
            return EMPTY
        return shown(value) if low is None or high is None else f"{shown(value)} ({shown(low)} to {shown(high)})"

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

    @property
    def shown_columns(self) -> Sequence[Column]:
        """What readers see."""
        return self.columns or [Column(str(key), (str(key),)) for key in self.data]

    @cached_property
    def lines(self) -> list[list[str]]:
        """The text of each row's cells."""
        rows = self.data.astype(object).where(self.data.notna(), None).to_dict("records")
        return [[" ".join(column.text(row).split()) for column in self.shown_columns] for row in rows]

    @property
    def rows(self) -> list[dict[str, str]]:
        """The text of each row's cells by the column's title."""
        titles = [column.title for column in self.shown_columns]
        return [dict(zip(titles, line, strict=True)) for line in self.lines]


@dataclass(frozen=True)
class Section:
    """One part of a report."""

    key: str
    """Its anchor in HTML, unique in the report: `lost-time`."""
    title: str
    answer: tuple[str, ...]
    """Sentences: the result first, with how certain it is; then advice."""
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about the method and its limits."""


@dataclass(frozen=True)
class KeyFigure:
    """One number of the answer."""

    value: str
    """Value with its unit: `151.7 images/s`."""
    meaning: str
    """What it is, and how certain: `of the whole job, 149.3 to 154.2`."""


@dataclass(frozen=True)
class Listing:
    """Lines of text under a title: failed arms, repeated turns. `code` and **bold** as in Markdown."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Page:
    """A report in its order. Texts may hold `code` and **bold** as in Markdown."""

    title: str
    headline: tuple[str, ...]
    """The answer in sentences, one text per folder or question."""
    sections: tuple[Section, ...]
    environment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Fact -> its distinct values."""
    warnings: tuple[Warning, ...] = ()
    commands: tuple[str, ...] = ()
    """Commands that repeat what was measured."""
    facts: tuple[str, ...] = ()
    """A few words each: when, where, how much was measured."""
    figures: tuple[KeyFigure, ...] = ()
    method: str = ""
    """Paragraphs, and items of lists that start with `- `."""
    listings: tuple[Listing, ...] = ()
