"""What a report shows, whatever its format: an answer, sections, and how it was measured. Data, no layout."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfdist.bench.report.section import Section
from tfdist.bench.report.warning import Warning


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
