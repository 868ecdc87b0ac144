"""A page as one HTML file: charts as inline SVG, styles for light and dark, script inside, nothing from a network."""

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from tfdist.bench.report.figures.colors import ASYNC, DARK, GRID, INK, MUTED, NONE, PAPER, RED, SYNC
from tfdist.bench.report.figures.files import to_csv
from tfdist.bench.report.figures.pictures import PAGE_INCHES, PHONE_INCHES, to_svg
from tfdist.bench.report.format import figure_columns
from tfdist.bench.report.markdown import environment_lines
from tfdist.bench.report.section import Chart, Page, Section, Table

if TYPE_CHECKING:
    import pandas as pd

_NAMES: Mapping[str, str] = {
    PAPER: "paper",
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    RED: "red",
    SYNC: "sync",
    ASYNC: "async",
    NONE: "none",
}


def variables() -> str:
    """The style sheet that defines every color, for both schemes."""
    light = _declarations({color: color for color in DARK})
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_declarations(DARK)} }} }}\n"
        f"@media print {{ :root {{ color-scheme: light; {light} }} }}\n"
    )


def themed(svg: str) -> str:
    """`svg` with variables in place of the colors."""
    return re.sub("|".join(DARK), lambda found: f"var({_variable(found[0])})", svg, flags=re.IGNORECASE)


def _declarations(colors: Mapping[str, str]) -> str:
    return " ".join(f"{_variable(color)}: {value};" for color, value in colors.items())


def _variable(color: str) -> str:
    return f"--{_NAMES.get(color.lower(), 'c' + color[1:].lower())}"


_BAD = re.compile(r"(wrong|failed|timeout|interrupted|refused|not run)\b")
_LONG = 60
"""Characters of a cell that is broken into lines."""


def render(page: Page) -> str:
    """The text of report.html. The same page gives the same text."""
    return (
        _environment()
        .from_string(_resource("page.html.j2"))
        .render(
            page=page,
            style=Markup(variables() + _resource("style.css")),
            script=Markup(_resource("sort.js")),
            headline=[_first_sentence(text) for text in page.headline],
            sections=[_section(section) for section in page.sections],
            environment=list(environment_lines(page.environment)),
            method=_blocks(page.method),
        )
    )


@dataclass(frozen=True)
class _Chart:
    name: str
    title: str
    wide: Markup
    narrow: Markup
    csv: str
    """A data URI."""


@dataclass(frozen=True)
class _Table:
    name: str
    title: str
    columns: list[tuple[str, bool]]
    """Name, whether its cells are figures."""
    lines: list[list[str]]
    csv: str


def _section(section: Section) -> dict[str, Any]:
    return {
        **vars(section),
        "charts": [_chart(chart) for chart in section.charts],
        "tables": [_table(table) for table in section.tables],
    }


def _chart(chart: Chart) -> _Chart:
    wide, narrow = (_picture(chart, inches) for inches in (PAGE_INCHES, PHONE_INCHES))
    return _Chart(chart.name, chart.title, wide, narrow, _data_uri(chart.data))


def _picture(chart: Chart, inches: float) -> Markup:
    label = escape(" ".join(chart.alt.split()))
    return Markup(themed(to_svg(chart, inches)).replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))


def _table(table: Table) -> _Table:
    columns = [(each.title, figures) for each, figures in zip(table.shown_columns, figure_columns(table), strict=True)]
    return _Table(table.name, table.title, columns, table.lines, _data_uri(table.data))


def _data_uri(data: "pd.DataFrame") -> str:
    return "data:text/csv;base64," + b64encode(to_csv(data).encode()).decode()


def _first_sentence(text: str) -> tuple[str, str]:
    """The first sentence, and the others."""
    first, *others = re.split(r"(?<=[.!?]) (?=[A-Z])", text, maxsplit=1)
    return first, " ".join(others)


def _aside(text: str) -> Markup:
    """What is in parentheses in smaller letters."""
    return Markup(re.sub(r"( \([^()]*\))", r"<small>\1</small>", str(_inline(text))))


def _blocks(text: str) -> list[tuple[str, list[str]]]:
    """`p` with a paragraph, or `ul` with the items of a list."""
    blocks: list[tuple[str, list[str]]] = []
    for part in re.split(r"\n\s*\n|\n(?=- )", text.strip()):
        kind, body = ("ul", part[2:]) if part.startswith("- ") else ("p", part)
        if kind == "ul" and blocks and blocks[-1][0] == "ul":
            blocks[-1][1].append(body)
        elif body:
            blocks.append((kind, [body]))
    return blocks


@cache
def _environment() -> Environment:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["inline"] = _inline
    environment.filters["aside"] = _aside
    environment.filters["breakable"] = lambda cell: Markup(str(escape(cell)).replace("/", "/<wbr>"))
    environment.globals["classes"] = _classes
    return environment


def _classes(cell: str, figures: bool) -> Markup:
    names = ("figure", figures), ("bad", bool(_BAD.match(cell))), ("long", len(cell) > _LONG and not figures)
    present = " ".join(name for name, holds in names if holds)
    return Markup(f' class="{present}"') if present else Markup()


def _inline(text: str) -> Markup:
    """`code` and **bold** of Markdown."""
    html = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", html))


def _resource(name: str) -> str:
    return (files("tfdist.bench.report.html") / name).read_text(encoding="utf-8")
