"""Chart -> PNG or SVG. The same chart gives the same bytes."""

import re
from io import BytesIO, StringIO
from math import ceil
from textwrap import fill
from typing import Any

import matplotlib
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.scale import LogTransform
from matplotlib.ticker import LogFormatter, LogFormatterMathtext

from tfdist.bench.report.figures.colors import GRID, INK, MUTED, PALETTE
from tfdist.bench.report.section import Chart

PAGE_INCHES, PHONE_INCHES = 10.0, 4.0
"""Widths of a chart. At the width of a phone its letters have the size of the text around it."""
_PHONE_CHARACTERS = 50
"""Characters of a line at the width of a phone."""
_LINE_INCHES = 0.2
"""Height of a line of a legend."""
_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": GRID,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.prop_cycle": cycler(color=PALETTE),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.color": GRID,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "tfdist",
    "text.color": INK,
    "text.parse_math": False,
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("xtick.major.size", "xtick.minor.size", "ytick.major.size", "ytick.minor.size"), 0),
}


def to_png(chart: Chart) -> bytes:
    """The picture with its title, on white."""
    stream = BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure, axes = _drawn(chart, PAGE_INCHES, above=0.7)
        FigureCanvasAgg(figure)
        pad = 24 if chart.caption else 12
        axes.set_title(chart.title, loc="left", fontsize=13, fontweight="bold", color=INK, pad=pad)
        axes.text(0, 1.0, chart.caption, transform=axes.transAxes, color=MUTED, va="bottom", wrap=True)
        figure.savefig(stream, dpi=130, format="png", metadata={"Software": None})
    return stream.getvalue()


def to_svg(chart: Chart, inches: float) -> str:
    """An `<svg>` element of this width, without title and background; text stays text.

    Its ids begin with the chart's name and the width, so that they are unique in a page.
    """
    stream = StringIO()
    with matplotlib.rc_context(_STYLE):
        figure, _ = _drawn(chart, inches, above=0.0)
        FigureCanvasSVG(figure)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(stream, format="svg", transparent=True, metadata=nothing)
    text = stream.getvalue()
    element = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    # without sizes in points: a style sheet sets its width
    element = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1">', element, count=1)
    return re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{chart.name}-{inches:g}-", element).strip()


def _drawn(chart: Chart, inches: float, above: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(inches, chart.inches + above), layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.06))
    axes = figure.subplots()
    chart.paint(axes)
    _label_logs(axes)
    if inches < PAGE_INCHES:
        axes.set_xlabel(fill(axes.get_xlabel(), _PHONE_CHARACTERS))
    _shorten_names(axes, inches)
    if axes.get_legend() is None:
        _legend(figure, axes)
    return figure, axes


def _shorten_names(axes: Axes, inches: float) -> None:
    """Names of arms leave room for the chart."""
    legend = axes.get_legend()
    for text in (*axes.texts, *(legend.get_texts() if legend else ())):
        text.set_text(_shortened(text.get_text(), 8 * inches))
    for axis in (axes.xaxis, axes.yaxis):
        names = [label.get_text() for label in axis.get_ticklabels()]
        shown = [_shortened(name, 6 * inches) for name in names]
        if shown != names:
            axis.set_ticks(axis.get_ticklocs(), shown)


def _shortened(text: str, characters: float) -> str:
    half = int(characters) // 2 - 2
    return text if len(text) <= characters else f"{text[:half]}...{text[-half:]}"


class _LogLabels(LogFormatter):
    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def _label_logs(axes: Axes) -> None:
    """Numbers in place of formulas, which are not parsed, because an arm may be called $x$."""
    for axis in (axes.xaxis, axes.yaxis):
        scale = axis.get_transform()
        for ticker in (axis.major, axis.minor):
            if isinstance(scale, LogTransform) and isinstance(ticker.formatter, LogFormatterMathtext):
                ticker.formatter = _LogLabels(base=scale.base)
                ticker.formatter.set_axis(axis)


def _legend(figure: Figure, axes: Axes) -> None:
    """Below the chart, each label once: bars and dots, then lines. The figure grows by its height."""
    handles, labels = axes.get_legend_handles_labels()
    entries = sorted(zip(labels, handles, strict=True), key=lambda entry: isinstance(entry[1], Line2D))
    width, height = figure.get_size_inches()
    once = dict(entries)
    names = [_shortened(label, 12 * width) for label in once]
    if once:
        columns = max(1, min(len(once), int(width / (0.075 * max(map(len, names)) + 0.55))))
        figure.set_size_inches(width, height + _LINE_INCHES * ceil(len(once) / columns))
        figure.legend(list(once.values()), names, loc="outside lower left", ncols=columns)
