"""All arms: their throughput, the step times of their windows in order of time, and what a run costs besides."""

from collections.abc import Sequence
from statistics import median

import pandas as pd
from matplotlib.axes import Axes

from tfdist.bench.report.arm_records import label_of
from tfdist.bench.report.columns import COST_COLUMNS, DESCRIPTIONS, chart_data, columns_for, scaling_of, values_of
from tfdist.bench.report.figures.arm_chart import arm_chart, described, draw_interval, figure_text, note_on_drawn, write
from tfdist.bench.report.figures.colors import EXCHANGE, INK, RED
from tfdist.bench.report.format import for_unit, in_unit
from tfdist.bench.report.section import Section
from tfdist.bench.report.summary import ArmRow, ReportData
from tfdist.bench.table import Column, Table
from tfdist.models.throughput import window_step_ms

_FEW_DOTS = 20
"""More windows of an arm than this are drawn as smaller dots."""


def windows_section(measured: ReportData) -> Section | None:
    """None if nothing was measured."""
    rows = measured.rows
    if not any(row.measured for row in rows):
        return None
    medians = (f"{row.label} {f'{median(row.step_ms):.1f}' if row.step_ms else row.status}" for row in rows)
    alt = f"A dot for each timed window. Median milliseconds per step: {described(medians)}."
    text = "Each dot is the time per step of all devices in one timed window, from top to bottom in order of time."
    data = pd.DataFrame(
        [
            (row.folder, row.arm, record.round, record.incarnation, number, value)
            for row in rows
            for record in row.measured
            for number, value in enumerate(window_step_ms(record), start=1)
        ],
        columns=["folder", "arm", "round", "incarnation", "window", "step_ms"],
    )
    chart = arm_chart("window_times", "Step times of each arm", alt, rows, paint_windows, data)
    return Section("windows", "Window times", (text,), charts=(chart,))


def paint_windows(axes: Axes, rows: Sequence[ArmRow]) -> None:
    """A dot for each window and the median."""
    for index, row in enumerate(rows):
        if times := row.step_ms:
            # in time order over the height of the row, so that drift appears as a slope
            heights = [index - 0.27 + 0.54 * (k + 0.5) / len(times) for k in range(len(times))]
            color, words = EXCHANGE[row.exchange]
            size = max(4.0, 14 * min(1.0, _FEW_DOTS / len(times)))
            axes.scatter(times, heights, s=size, color=color, alpha=0.65, lw=0, label=words)
            axes.plot([median(times)] * 2, [index - 0.36, index + 0.36], color=INK, lw=1.8, label="median")
    axes.set_xlabel("milliseconds per step of all devices")
    axes.margins(x=0.06)


def results_section(measured: ReportData) -> Section:
    """Every arm, those that failed included; the table has each figure in the unit of its column name."""
    rows, scaling = measured.rows, scaling_of(measured.rows)
    table = pd.DataFrame([values_of(row, scaling) for row in rows]).convert_dtypes()
    labels = ", ".join(dict.fromkeys(row.one_device.label for row in rows if row.one_device))
    baseline = f"Baseline of speed-up and efficiency: {labels}." if labels else "No baseline was measured."
    figures = described(f"{row.label} {figure_text(row)}" for row in rows)
    alt = in_unit(f"Images/s of the whole job, with intervals: {figures}.", rows)
    title, data = "Throughput of each arm", chart_data(rows)
    chart = arm_chart("images_per_s", title, alt, rows, paint_throughput, data, DESCRIPTIONS[scaling])
    return Section(
        "results",
        "Results",
        (f"{DESCRIPTIONS[scaling]}. {baseline}",),
        charts=(chart,) if any(row.measured for row in rows) else (),
        tables=(Table("report", "All arms", table, columns_for(rows)),),
        notes=(*measured.notes, *note_on_drawn(rows)),
    )


def paint_throughput(axes: Axes, rows: Sequence[ArmRow]) -> None:
    """A bar for each arm, its interval, and the ideal."""
    for index, row in enumerate(rows):
        if row.measured:
            color, words = EXCHANGE[row.exchange]
            axes.barh(index, row.rate, height=0.62, color=color, label=words)
            high = draw_interval(axes, row.spread, row.rate, index)
            if row.ideal and row.devices != 1:
                label = "ideal: as fast per device as the baseline"
                axes.plot([row.ideal] * 2, [index - 0.36, index + 0.36], color=RED, lw=1.6, ls="--", label=label)
            text = f"{row.rate:.0f}" + ("" if row.valid else f", {row.status}")
            write(axes, text, high, index, color=INK if row.valid else RED)
    axes.set_xlabel(in_unit("images/s of the whole job", rows))
    axes.margins(x=0.08)


def costs_section(measured: ReportData) -> Section | None:
    """The columns that some arm has; None if nothing was measured."""
    rows = [row for row in measured.rows if row.measured]
    if not rows:
        return None
    values = [{"folder": row.folder, "arm": row.arm, **row.costs} for row in rows]
    shown = for_unit((Column("arm", ("folder", "arm"), label_of), *COST_COLUMNS), rows)
    table = Table("costs", "Costs of each arm", pd.DataFrame(values).convert_dtypes(), shown)
    return Section("costs", "What a run costs", (), tables=(table,))
