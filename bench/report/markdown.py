"""A page as Markdown. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tfdist.bench.report.cells import figure_columns, lines_of
from tfdist.bench.report.page import Page
from tfdist.bench.report.section import Chart, Section, Table

if TYPE_CHECKING:
    import pandas as pd

_FIRST = ("results", "efficiency", "windows", "costs")
"""Keys of the sections that Markdown begins with: a table of all arms is what a reader of text looks for."""


def markdown(page: Page) -> str:
    """The whole page; pictures are files in the same folder."""
    sections = sorted(page.sections, key=lambda section: _FIRST.index(section.key) if section.key in _FIRST else 9)
    parts = (
        f"# {page.title}\n\n" + "\n\n".join(page.headline),
        *map(_of_section, sections),
        _listing("Warnings", (f"**{w.code}**: {w.text} {w.advice}" for w in page.warnings)),
        *(_listing(listing.title, listing.lines) for listing in page.listings),
        _listing("Environment", environment_lines(page.environment)),
        f"## Method\n\n{page.method}" if page.method else "",
        _listing("Command", (f"`{command}`" for command in page.commands)),
    )
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def environment_lines(facts: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """`fact: value`, with all values where they differ."""
    for fact, values in facts.items():
        differs = " (differs between processes)" if len(values) > 1 else ""
        yield f"{fact}: {' | '.join(values)}{differs}"


def to_table(shown: "pd.DataFrame") -> str:
    """A table of text, with figures aligned to the right."""
    lines = lines_of(shown)
    rule = ["--:" if right else "---" for right in figure_columns(len(shown.columns), lines)]
    return "\n".join(map(_line, (list(shown.columns), rule, *lines))) + "\n"


def _of_section(section: Section) -> str:
    answer = "\n\n".join(section.answer)
    tables = [_of_table(table, titled=len(section.tables) > 1) for table in section.tables]
    notes = "\n".join(f"- {note}" for note in section.notes)
    parts = (f"## {section.title}", answer, *tables, notes, *map(_of_chart, section.charts))
    return "\n\n".join(part.strip() for part in parts if part)


def _of_table(table: Table, titled: bool) -> str:
    return (f"{table.title}:\n\n" if titled else "") + to_table(table.shown)


def _of_chart(chart: Chart) -> str:
    alt = " ".join(chart.alt.split()).replace("[", "(").replace("]", ")")
    return f"![{alt}]({chart.name}.png)"


def _listing(title: str, lines: Iterable[str]) -> str:
    items = [f"- {line}" for line in lines]
    return "\n".join([f"## {title}\n", *items]) if items else ""


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
