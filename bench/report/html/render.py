"""A page as one HTML file: charts as inline SVG, styles for light and dark, script inside, nothing from a network."""

import re
from base64 import b64encode
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from tfdist.bench.report.figures.colors import ASYNC, DARK, GRID, INK, MUTED, NONE, PAPER, RED, SYNC
from tfdist.bench.report.figures.files import to_csv
from tfdist.bench.report.figures.pictures import PAGE_INCHES, PHONE_INCHES, to_svg
from tfdist.bench.report.format import figure_columns
from tfdist.bench.report.markdown import environment_lines
from tfdist.bench.report.section import Chart, Page, Section

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
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["inline"] = _inline
    # what is in parentheses in smaller letters
    environment.filters["aside"] = lambda text: Markup(
        re.sub(r"( \([^()]*\))", r"<small>\1</small>", str(_inline(text)))
    )
    environment.filters["breakable"] = lambda cell: Markup(str(escape(cell)).replace("/", "/<wbr>"))
    environment.globals["classes"] = _classes
    return environment.from_string(_resource("page.html.j2")).render(
        page=page,
        style=Markup(variables() + _resource("style.css")),
        script=Markup(_resource("sort.js")),
        headline=[_first_sentence(text) for text in page.headline],
        sections=[_section(section) for section in page.sections],
        environment=list(environment_lines(page.environment)),
        method=Markup(MarkdownIt().render(page.method)),
    )


def _section(section: Section) -> dict[str, Any]:
    """Charts as SVG elements for wide and narrow pages; tables with (title, whether its cells are figures) for each
    column; the data of both as URIs."""
    charts = [
        {
            **vars(chart),
            "csv": _data_uri(chart.data),
            "wide": _svg(chart, PAGE_INCHES),
            "narrow": _svg(chart, PHONE_INCHES),
        }
        for chart in section.charts
    ]
    tables = [
        {
            "name": table.name,
            "title": table.title,
            "columns": list(zip([each.title for each in table.shown_columns], figure_columns(table), strict=True)),
            "lines": table.lines,
            "csv": _data_uri(table.data),
        }
        for table in section.tables
    ]
    return {**vars(section), "charts": charts, "tables": tables}


def _svg(chart: Chart, inches: float) -> Markup:
    label = escape(" ".join(chart.alt.split()))
    return Markup(themed(to_svg(chart, inches)).replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))


def _data_uri(data: "pd.DataFrame") -> str:
    return "data:text/csv;base64," + b64encode(to_csv(data).encode()).decode()


def _first_sentence(text: str) -> tuple[str, str]:
    """The first sentence, and the others."""
    first, *others = re.split(r"(?<=[.!?]) (?=[A-Z])", text, maxsplit=1)
    return first, " ".join(others)


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
