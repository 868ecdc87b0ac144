"""A page as one HTML file: charts as inline SVG, styles for light and dark, script inside, nothing from a network."""

import re
from base64 import b64encode
from importlib.resources import files

import pandas as pd
from jinja2 import Environment, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from tfdist.bench.report.figures.colors import THEME
from tfdist.bench.report.figures.pictures import PAGE_INCHES, PHONE_INCHES, to_svg
from tfdist.bench.report.format import figure_columns, to_csv
from tfdist.bench.report.markdown import environment_lines
from tfdist.bench.report.section import Chart, Page


def variables() -> str:
    """The style sheet that defines every color, for both schemes."""
    light = " ".join(f"--{name}: {color};" for color, (name, _) in THEME.items())
    dark = " ".join(f"--{name}: {color};" for name, color in THEME.values())
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
        f"@media print {{ :root {{ color-scheme: light; {light} }} }}\n"
    )


def themed(svg: str) -> str:
    """`svg` with variables in place of the colors."""
    return re.sub("|".join(THEME), lambda found: f"var(--{THEME[found[0].lower()][0]})", svg, flags=re.IGNORECASE)


_BAD = re.compile(r"(wrong|failed|timeout|interrupted|refused|not run)\b")
_LONG = 60
"""Characters of a cell that is broken into lines."""


def render(page: Page) -> str:
    """The text of report.html. The same page gives the same text."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters["inline"] = _inline
    environment.filters["breakable"] = lambda cell: Markup(str(escape(cell)).replace("/", "/<wbr>"))
    environment.globals.update(
        classes=_classes,
        data_uri=_data_uri,
        environment_lines=environment_lines,
        figure_columns=figure_columns,
        first_sentence=_first_sentence,
        svg=_svg,
    )
    return environment.from_string(_resource("page.html.j2")).render(
        page=page,
        style=Markup(variables() + _resource("style.css")),
        script=Markup(_resource("sort.js")),
        wide=PAGE_INCHES,
        narrow=PHONE_INCHES,
        method=Markup(MarkdownIt().render(page.method)),
    )


def _svg(chart: Chart, inches: float) -> Markup:
    label = escape(" ".join(chart.alt.split()))
    return Markup(themed(to_svg(chart, inches)).replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))


def _data_uri(data: pd.DataFrame) -> str:
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
