"""A part of a report besides the table of arms: one question, its answer, charts and tables. Data, no layout.

Each format (Markdown, HTML, CSV, JSON) is written from the same sections.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


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


@dataclass(frozen=True)
class Table:
    """One table: what readers see, and the exact values."""

    name: str
    """Part of a file name: NAME.csv."""
    title: str
    shown: "pd.DataFrame"
    """Formatted text, a column for each."""
    data: "pd.DataFrame"
    """The values, units in the names of columns."""


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
