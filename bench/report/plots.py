"""Rows -> plots. The same rows give the same files, byte for byte."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from statistics import median

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from tfdist.bench.report.colors import ASYNC, GRID, INK, MUTED, NONE, PALETTE, PAPER, RED, SYNC
from tfdist.bench.report.summary import WRONG, ArmRow
from tfdist.bench.report.unit import in_unit
from tfdist.models.throughput import window_step_ms

_COLORS = {"sync": SYNC, "async": ASYNC, "no exchange": NONE}
_ROW_INCHES = 0.42
_FEW_DOTS = 20
"""More windows of an arm than this are drawn as smaller dots."""


def draw(rows: Sequence[ArmRow], caption: str) -> dict[str, bytes]:
    """File name -> PNG; empty if no arm was measured."""
    if not any(row.measured for row in rows):
        return {}
    return {name: _picture(rows, title, caption, paint) for name, (title, paint) in PLOTS.items()}


def _picture(
    rows: Sequence[ArmRow], title: str, caption: str, paint: Callable[[Axes, Sequence[ArmRow]], None]
) -> bytes:
    """One horizontal row per arm, in the order of the table."""
    figure = Figure(
        figsize=(10, 1.9 + _ROW_INCHES * len(rows)), dpi=130, layout=ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
    )
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    paint(axes, rows)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", color=INK, pad=24)
    axes.text(0, 1.012, caption, transform=axes.transAxes, fontsize=9, color=MUTED, va="bottom", wrap=True)
    axes.grid(axis="x", color=GRID)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, colors=INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    _legend(figure, axes)
    stream = BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()


def _legend(figure: Figure, axes: Axes) -> None:
    """Below the plot, each label once: bars and dots, then lines."""
    handles, labels = axes.get_legend_handles_labels()
    entries = sorted(zip(labels, handles, strict=True), key=lambda entry: isinstance(entry[1], Line2D))
    once = dict(entries)
    if once:
        figure.legend(
            list(once.values()),
            list(once),
            loc="outside lower center",
            ncols=4,
            frameon=False,
            fontsize=9,
            labelcolor=INK,
        )


def _throughput(axes: Axes, rows: Sequence[ArmRow]) -> None:
    for index, row in enumerate(rows):
        if row.images_per_s is None:
            _write_status(axes, index, row)
            continue
        axes.barh(index, row.images_per_s, height=0.62, color=_COLORS[row.exchange], label=_EXCHANGE[row.exchange])
        high = row.spread.high if row.spread else row.images_per_s
        if row.spread:
            _interval(axes, row.spread.low, high, index)
        ideal = _ideal(row)
        if ideal:
            label = "ideal: one device times the number of devices"
            axes.plot([ideal, ideal], [index - 0.42, index + 0.42], color=RED, lw=1.6, ls="--", label=label)
        if row.status == WRONG:
            _write(axes, f"{row.images_per_s:.0f}, {WRONG} losses", high, index, color=RED)
        else:
            _write(axes, f"{row.images_per_s:.0f}", high, index)
    axes.set_xlabel(in_unit("images/s of the whole job", rows), color=INK)
    axes.margins(x=0.08)
    axes.set_xlim(left=0)


def _ideal(row: ArmRow) -> float | None:
    """The baseline's images/s on each of the row's devices."""
    if row.one_device is None or row.devices is None or row.devices == 1:
        return None
    return row.one_device.per_device * row.devices


def _efficiency(axes: Axes, rows: Sequence[ArmRow]) -> None:
    for index, row in enumerate(rows):
        if not row.measured:
            _write_status(axes, index, row)
        for offset, versus, color, label in (
            (-0.17, row.one_device, SYNC, "against one device"),
            (0.17, row.independent, PALETTE[2], "against independent (same devices, no exchange)"),
        ):
            if versus is None:
                continue
            axes.barh(index + offset, versus.efficiency, height=0.32, color=color, label=label)
            interval, high = versus.comparison.interval, versus.efficiency
            if interval:
                high = interval.high / versus.devices
                _interval(axes, interval.low / versus.devices, high, index + offset, ms=5)
            _write(axes, f"{versus.efficiency:.0%}", high, index + offset)
    axes.axvline(1.0, color=RED, lw=1.4, ls="--", label="ideal: 100 %")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(in_unit("efficiency: images/s per device, as a share of the baseline's", rows), color=INK)
    axes.margins(x=0.08)
    axes.set_xlim(left=0)


def _windows(axes: Axes, rows: Sequence[ArmRow]) -> None:
    for index, row in enumerate(rows):
        times = [value for record in row.measured for value in window_step_ms(record)]
        if not times:
            _write_status(axes, index, row)
            continue
        # in time order over the height of the row, so that drift appears as a slope
        heights = [index - 0.27 + 0.54 * (k + 0.5) / len(times) for k in range(len(times))]
        color = _COLORS[row.exchange]
        size = max(4.0, 14 * min(1.0, _FEW_DOTS / len(times)))
        axes.scatter(times, heights, s=size, color=color, alpha=0.65, lw=0, label=_EXCHANGE[row.exchange])
        middle = median(times)
        axes.plot([middle, middle], [index - 0.36, index + 0.36], color=INK, lw=1.8, label="median")
    axes.set_xlabel(
        "milliseconds per step of all devices, one dot per window (top to bottom: in time order)", color=INK
    )
    axes.margins(x=0.06)
    axes.set_xlim(left=0)


def _interval(axes: Axes, low: float, high: float, y: float, ms: float = 8) -> None:
    axes.plot([low, high], [y, y], color=INK, lw=1.6, marker="|", ms=ms, label="confidence interval")


def _write_status(axes: Axes, index: int, row: ArmRow) -> None:
    _write(axes, row.status, 0, index, color=RED, style="italic")


def _write(axes: Axes, text: str, x: float, y: float, color: str = INK, style: str = "normal") -> None:
    """Right of a point, on a background that hides lines behind it."""
    behind = {"boxstyle": "round,pad=0.1", "fc": PAPER, "ec": "none", "alpha": 0.85}
    axes.annotate(
        text, (x, y), (7, 0), textcoords="offset points", va="center", fontsize=9, color=color, style=style, bbox=behind
    )


_EXCHANGE: Mapping[str, str] = {
    "sync": "synchronous",
    "async": "asynchronous",
    "no exchange": "no exchange between devices",
}

PLOTS: Mapping[str, tuple[str, Callable[[Axes, Sequence[ArmRow]], None]]] = {
    "images_per_s.png": ("Throughput of each arm", _throughput),
    "efficiency.png": ("Efficiency of each arm", _efficiency),
    "window_times.png": ("Step times of each arm", _windows),
}
"""The plots of a report: file name -> title, function that draws it."""
