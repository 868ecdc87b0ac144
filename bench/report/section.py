"""What a report shows, whatever its format: an answer, sections with charts and tables, warnings. Data, no layout.

Each format (Markdown, HTML, CSV, JSON) is written from the same sections.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdist.bench.table import Table

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
    trust: tuple[str, ...] = ()
    """How far to trust the figures, before all else."""
