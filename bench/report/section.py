"""What a report shows, whatever its format: an answer, sections with charts and tables, warnings. Data, no layout.

Each format (Markdown, HTML, CSV, JSON) is written from the same sections.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from tfdist.bench.table import Table


@dataclass(frozen=True)
class Warning:
    """A problem of the figures, and how to avoid it."""

    code: str
    text: str
    advice: str


@dataclass(frozen=True)
class Chart:
    """One picture, and the numbers in it."""

    name: str
    """Part of file names: NAME.png, NAME.csv."""
    title: str
    alt: str
    """What it shows, with the figures that matter, for readers who do not see it."""
    paint: Callable[[Axes], None]
    """Draws it, in the colors of `colors.py`; no title."""
    data: pd.DataFrame
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

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values: texts, rows of the tables, and where the data of the charts are."""
        return {
            "key": self.key,
            "title": self.title,
            "answer": list(self.answer),
            "charts": [
                {"name": chart.name, "title": chart.title, "alt": chart.alt, "data": f"{chart.name}.csv"}
                for chart in self.charts
            ],
            "tables": [
                {
                    "name": table.name,
                    "title": table.title,
                    "rows": json.loads(table.data.to_json(orient="records", double_precision=15)),
                }
                for table in self.tables
            ],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class KeyFigure:
    """One number of the answer."""

    value: str
    """Value with its unit: `151.7 images/s`."""
    meaning: str
    """What it is, and how certain: `of the whole job, 149.3 to 154.2`."""


@dataclass(frozen=True)
class Page:
    """A report in its order. Texts may hold `code` and **bold** as in Markdown."""

    title: str
    headline: tuple[str, ...]
    """The answer in sentences, then how sure it is; a text for each folder or question."""
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
    listings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Title -> lines: failed arms, repeated turns."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {
            "format": 1,
            "title": self.title,
            "headline": list(self.headline),
            "sections": [section.to_json() for section in self.sections],
            "warnings": [asdict(warning) for warning in self.warnings],
            "environment": {fact: list(values) for fact, values in self.environment.items()},
            "commands": list(self.commands),
        }
