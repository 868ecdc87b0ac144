"""Charts with a horizontal row for each arm, in the order of the table."""

from collections.abc import Callable, Iterable, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from tfdist.bench.mean import Mean
from tfdist.bench.report.figures.colors import INK, PAPER, RED
from tfdist.bench.report.format import between
from tfdist.bench.report.section import Chart
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import Interval
from tfdist.launch.text import shortened

MOST_ARMS = 40
"""More arms than this are not drawn in one chart."""
_ROW_INCHES = 0.42
_PHONE = 6.0
"""Charts narrower than this have the name of an arm above its row."""


def arm_chart(
    name: str,
    title: str,
    alt: str,
    rows: Sequence[ArmRow],
    paint: Callable[[Axes, Sequence[ArmRow]], None],
    data: pd.DataFrame,
    caption: str = "",
) -> Chart:
    """A chart of the arms in `drawn(rows)`; `paint` draws the k-th of them at y = k, if it was measured."""
    shown = drawn(rows)

    def paint_rows(axes: Axes) -> None:
        paint(axes, shown)
        axes.set_xlim(left=0)
        for index, row in enumerate(shown):
            if not row.measured:
                write(axes, row.status, 0, index, color=RED, style="italic")
        name_rows(axes, [row.label for row in shown])

    return Chart(name, title, alt, paint_rows, data, 1.0 + _ROW_INCHES * len(shown), caption)


def drawn(rows: Sequence[ArmRow]) -> Sequence[ArmRow]:
    """The fastest arms, and the baseline of the fastest: at most MOST_ARMS."""
    if len(rows) <= MOST_ARMS:
        return rows
    fastest = sorted(rows, key=lambda row: -row.rate)
    baselines = {versus.label for versus in (fastest[0].one_device, fastest[0].independent) if versus}
    kept = {row.label for row in fastest[: MOST_ARMS - len(baselines)]} | baselines
    return [row for row in rows if row.label in kept]


def note_on_drawn(rows: Sequence[ArmRow]) -> tuple[str, ...]:
    """A sentence if charts do not show all arms."""
    text = (
        f"Charts show {len(drawn(rows))} of {len(rows):,} arms: the fastest, and the baselines of the fastest one. The "
        f"table and the data have all."
    )
    return (text,) if len(drawn(rows)) < len(rows) else ()


def described(texts: Iterable[str]) -> str:
    """The first of the texts, each with the figures of an arm, for an alt text."""
    return shortened(texts, 12, "; ")


def figure_text(row: ArmRow) -> str:
    """`90.9 (89.5 to 92.4)`, or why there is none."""
    return f"{row.rate:.1f}{between(row.spread, '.1f')}" if row.measured else row.status


def draw_interval(axes: Axes, limits: Interval | Mean | None, value: float, y: float, ms: float = 8) -> float:
    """A horizontal confidence interval, with an edge that separates it from a bar behind it.

    Returns:
        Its upper end; the value if it has no interval.
    """
    if limits is None or limits.low is None or limits.high is None:
        return value
    edge, label = [withStroke(linewidth=3.4, foreground=PAPER)], "confidence interval"
    axes.plot([limits.low, limits.high], [y, y], color=INK, lw=1.4, marker="|", ms=ms, label=label, path_effects=edge)
    return limits.high


def write(axes: Axes, text: str, x: float, y: float, color: str = INK, style: str = "normal") -> None:
    """Write a text right of a point, on a background that hides lines behind it."""
    behind = {"boxstyle": "round,pad=0.1", "fc": PAPER, "ec": "none", "alpha": 0.85}
    axes.annotate(
        text, (x, y), (7, 0), textcoords="offset points", va="center", fontsize=9, color=color, style=style, bbox=behind
    )


def name_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Name the rows at y = 0, 1, ... downwards: left of the axes, or above each row where the chart is narrow."""
    narrow = is_narrow(axes)
    axes.set_yticks(range(len(labels)), [""] * len(labels) if narrow else labels)
    axes.set_ylim(len(labels) - 0.4, -0.7 if narrow else -0.6)
    for index, label in enumerate(labels if narrow else ()):
        axes.text(0, index - 0.5, label, transform=axes.get_yaxis_transform(), va="center", fontsize=8.5)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def is_narrow(axes: Axes) -> bool:
    """Whether the chart is drawn for a phone."""
    figure = axes.get_figure(root=True)
    return figure is not None and bool(figure.get_size_inches()[0] < _PHONE)
