"""Efficiency of all arms, against one device and against trainings without exchange."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tfdist.bench.report.arm_chart import arm_chart, described, draw_interval, write, write_status
from tfdist.bench.report.colors import PALETTE, RED
from tfdist.bench.report.format import number
from tfdist.bench.report.report_data import ReportData
from tfdist.bench.report.section import Section
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.report.unit import in_unit
from tfdist.bench.report.versus import VersusBaseline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TEXT = (
    "Efficiency is the throughput of a device as a share of the baseline's. Against one device it includes what the "
    "devices of one machine take from each other; against independent trainings it is the cost of the strategy alone."
)


def efficiency_section(measured: ReportData) -> Section | None:
    """None without a baseline."""
    rows = [row for row in measured.rows if row.one_device or row.independent or not row.measured]
    if not any(row.measured for row in rows):
        return None
    alt = f"Efficiency of each arm: {described(rows, _figures)}."
    data = pd.DataFrame([_values(row) for row in rows]).convert_dtypes()
    chart = arm_chart("efficiency", "Efficiency of each arm", alt, rows, paint_efficiency, data)
    return Section("efficiency", "Efficiency", (_TEXT,), charts=(chart,))


def _limits(versus: VersusBaseline) -> tuple[float, float] | None:
    interval = versus.comparison.interval
    return (interval.low / versus.devices, interval.high / versus.devices) if interval else None


def _values(row: ArmRow) -> dict[str, object]:
    values: dict[str, object] = {"folder": row.folder, "arm": row.arm, "devices": row.devices}
    for name, versus in (("one_device", row.one_device), ("independent", row.independent)):
        low, high = (versus and _limits(versus)) or (None, None)
        values |= {
            f"baseline_{name}": versus.label if versus else None,
            f"efficiency_vs_{name}": versus.efficiency if versus else None,
            f"efficiency_vs_{name}_low": low,
            f"efficiency_vs_{name}_high": high,
        }
    return values


def _figures(row: ArmRow) -> str:
    if not row.measured:
        return row.status
    one, independent = ((versus.efficiency if versus else None) for versus in (row.one_device, row.independent))
    return f"{number(one, '.0%')} of one device" + (f", {independent:.0%} of independent" if independent else "")


def paint_efficiency(axes: "Axes", rows: Sequence[ArmRow]) -> None:
    """Two bars for each arm, with intervals."""
    from matplotlib.ticker import PercentFormatter

    both = any(row.independent for row in rows) and any(row.one_device for row in rows)
    side, height = (0.17, 0.32) if both else (0.0, 0.5)
    for index, row in enumerate(rows):
        if not row.measured:
            write_status(axes, index, row)
        for offset, versus, color, label in (
            (-side, row.one_device, PALETTE[0], "against one device"),
            (side, row.independent, PALETTE[2], "against independent (same devices, no exchange)"),
        ):
            if versus is None:
                continue
            axes.barh(index + offset, versus.efficiency, height=height, color=color, label=label)
            low, high = _limits(versus) or (None, versus.efficiency)
            if low is not None:
                draw_interval(axes, low, high, index + offset, ms=5)
            write(axes, f"{versus.efficiency:.0%}", high, index + offset)
    axes.axvline(1.0, color=RED, lw=1.4, ls="--", label="ideal: 100 %")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(in_unit("images/s per device, as a share of the baseline's", rows))
    axes.margins(x=0.08)
    axes.set_xlim(left=0)
