"""Step times of all timed windows, in order of time: outliers, drift, and differences between starts."""

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

import pandas as pd

from tfdist.bench.report.arm_chart import EXCHANGE, arm_chart, described, write_status
from tfdist.bench.report.colors import INK
from tfdist.bench.report.report_data import ReportData
from tfdist.bench.report.section import Section
from tfdist.bench.report.summary import ArmRow
from tfdist.models.throughput import window_step_ms

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEW_DOTS = 20
"""More windows of an arm than this are drawn as smaller dots."""


def windows_section(measured: ReportData) -> Section | None:
    """None if nothing was measured."""
    rows = measured.rows
    if not any(row.measured for row in rows):
        return None
    alt = f"A dot for each timed window. Median milliseconds per step: {described(rows, _median)}."
    text = "Each dot is the time per step of all devices in one timed window, from top to bottom in order of time."
    chart = arm_chart("window_times", "Step times of each arm", alt, rows, paint_windows, _data(rows))
    return Section("windows", "Window times", (text,), charts=(chart,))


def _times(row: ArmRow) -> list[float]:
    return [value for record in row.measured for value in window_step_ms(record)]


def _median(row: ArmRow) -> str:
    times = _times(row)
    return f"{median(times):.1f}" if times else row.status


def _data(rows: Sequence[ArmRow]) -> pd.DataFrame:
    table: pd.DataFrame = pd.DataFrame(
        [
            (row.folder, row.arm, record.round, record.incarnation, number, value)
            for row in rows
            for record in row.measured
            for number, value in enumerate(window_step_ms(record), start=1)
        ],
        columns=["folder", "arm", "round", "incarnation", "window", "step_ms"],
    )
    return table


def paint_windows(axes: "Axes", rows: Sequence[ArmRow]) -> None:
    """A dot for each window and the median."""
    for index, row in enumerate(rows):
        times = _times(row)
        if not times:
            write_status(axes, index, row)
            continue
        # in time order over the height of the row, so that drift appears as a slope
        heights = [index - 0.27 + 0.54 * (k + 0.5) / len(times) for k in range(len(times))]
        color, words = EXCHANGE[row.exchange]
        size = max(4.0, 14 * min(1.0, _FEW_DOTS / len(times)))
        axes.scatter(times, heights, s=size, color=color, alpha=0.65, lw=0, label=words)
        middle = median(times)
        axes.plot([middle, middle], [index - 0.36, index + 0.36], color=INK, lw=1.8, label="median")
    axes.set_xlabel("milliseconds per step of all devices")
    axes.margins(x=0.06)
    axes.set_xlim(left=0)
