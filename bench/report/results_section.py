"""Throughput of all arms: the chart and the first table of a report."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tfdist.bench.report.arm_chart import (
    EXCHANGE,
    arm_chart,
    described,
    draw_interval,
    figure_text,
    note_on_drawn,
    write,
    write_status,
)
from tfdist.bench.report.colors import INK, RED
from tfdist.bench.report.columns import COLUMNS, columns_of, values_of
from tfdist.bench.report.report_data import ReportData
from tfdist.bench.report.scaling import DESCRIPTIONS, scaling_of
from tfdist.bench.report.section import Chart, Section, Table
from tfdist.bench.report.summary import WRONG, ArmRow
from tfdist.bench.report.unit import in_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DATA = ("folder", "arm", "exchange", "devices", "images_per_s", "images_per_s_low", "images_per_s_high", "status")


def results_section(measured: ReportData) -> Section:
    """Every arm, those that failed included."""
    rows = measured.rows
    table = frame(rows, scaling_of(rows), measured.price_per_hour)
    return Section(
        "results",
        "Results",
        (f"{DESCRIPTIONS[scaling_of(rows)]}. {_baselines(rows)}",),
        charts=(_chart(rows, table),) if any(row.measured for row in rows) else (),
        tables=(Table("report", "All arms", shown_table(rows), table),),
        notes=(*measured.notes, *note_on_drawn(rows)),
    )


def frame(rows: Sequence[ArmRow], scaling: str, price_per_hour: float | None = None) -> pd.DataFrame:
    """One row per arm, each figure in the unit of its column name; missing: not measured."""
    table: pd.DataFrame = pd.DataFrame([values_of(row, scaling, price_per_hour) for row in rows]).convert_dtypes()
    return table


def shown_table(rows: Sequence[ArmRow]) -> pd.DataFrame:
    """The first table of report.md."""
    columns = columns_of(rows)
    table: pd.DataFrame = pd.DataFrame({in_unit(name, rows): list(map(COLUMNS[name], rows)) for name in columns})
    return table


def _baselines(rows: Iterable[ArmRow]) -> str:
    labels = dict.fromkeys(row.one_device.label for row in rows if row.one_device)
    return f"Baseline of speed-up and efficiency: {', '.join(labels)}." if labels else "No baseline was measured."


def _chart(rows: Sequence[ArmRow], table: pd.DataFrame) -> Chart:
    data = table[list(_DATA)].assign(images_per_s_ideal=pd.array([_ideal(row) for row in rows], dtype="Float64"))
    alt = f"Images/s of the whole job, with intervals: {described(rows, figure_text)}."
    title, caption = "Throughput of each arm", DESCRIPTIONS[scaling_of(rows)]
    return arm_chart("images_per_s", title, in_unit(alt, rows), rows, paint_throughput, data, caption)


def paint_throughput(axes: "Axes", rows: Sequence[ArmRow]) -> None:
    """A bar for each arm, its interval, and the ideal."""
    for index, row in enumerate(rows):
        if row.images_per_s is None:
            write_status(axes, index, row)
            continue
        color, words = EXCHANGE[row.exchange]
        axes.barh(index, row.images_per_s, height=0.62, color=color, label=words)
        high = row.spread.high if row.spread else row.images_per_s
        if row.spread:
            draw_interval(axes, row.spread.low, high, index)
        ideal = _ideal(row)
        if ideal:
            label = "ideal: one device times the number of devices"
            axes.plot([ideal, ideal], [index - 0.36, index + 0.36], color=RED, lw=1.6, ls="--", label=label)
        wrong = row.status == WRONG
        text = f"{row.images_per_s:.0f}" + (f", {WRONG} losses" if wrong else "")
        write(axes, text, high, index, color=RED if wrong else INK)
    axes.set_xlabel(in_unit("images/s of the whole job", rows))
    axes.margins(x=0.08)
    axes.set_xlim(left=0)


def _ideal(row: ArmRow) -> float | None:
    """The baseline's images/s on each of the row's devices."""
    if row.one_device is None or row.devices is None or row.devices == 1:
        return None
    return row.one_device.per_device * row.devices
