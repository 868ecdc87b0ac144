"""What a run costs besides its time: the columns and the table of a report."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from tfdist.bench.report.costs import PHASES, cost_per_million
from tfdist.bench.report.format import EMPTY, in_unit, number
from tfdist.bench.report.section import Section, Table
from tfdist.bench.report.summary import ArmRow, ReportData

_STEPS = ("p50", "p95", "p99")


def cost_values(row: ArmRow, price_per_hour: float | None) -> dict[str, Any]:
    """The columns of report.csv and report.json; None: not measured.

    Args:
        price_per_hour: of one host; None: unknown.
    """
    costs, gpus = row.costs, row.costs.gpus
    return {
        **{f"start_{phase}_s": costs.phases_s.get(phase) for phase in PHASES},
        "cpu_cores": costs.cpu_cores,
        "cpu_cores_parameter_servers": costs.server_cores,
        **dict(zip([f"step_ms_{name}" for name in _STEPS], costs.step_ms or (None,) * 3, strict=True)),
        "memory_largest_process_mb": _mega(costs.resident_bytes),
        "peak_memory_largest_process_mb": _mega(costs.largest_process_bytes),
        "peak_memory_job_mb": _mega(costs.job_bytes),
        "gpu_memory_mb": _mega(gpus.memory_bytes) if gpus else None,
        "gpu_utilization": gpus.utilization if gpus else None,
        "gpu_clock_mhz": gpus.clock_mhz if gpus else None,
        "gpu_throttle": gpus.throttle if gpus else None,
        "gpu_power_w": gpus.power_w if gpus else None,
        "images_per_joule": row.images_per_s / gpus.power_w if row.images_per_s and gpus and gpus.power_w else None,
        "cost_per_million_images": _cost(row, price_per_hour),
    }


def _cost(row: ArmRow, price_per_hour: float | None) -> float | None:
    if price_per_hour is None or not row.images_per_s:
        return None
    return cost_per_million(price_per_hour * row.hosts, row.images_per_s)


_Values = Mapping[str, Any]

COST_COLUMNS: Mapping[str, Callable[[_Values], str]] = {
    "start-up (s)": lambda values: number(values["start_first_step_end_s"], ".1f"),
    "import (s)": lambda values: number(values["start_import_s"], ".1f"),
    "strategy (s)": lambda values: number(values["start_strategy_s"], ".1f"),
    "build (s)": lambda values: number(values["start_build_s"], ".1f"),
    "trace (s)": lambda values: number(values["start_trace_s"], ".1f"),
    "CPU s per s": lambda values: number(values["cpu_cores"], ".2f"),
    "of it parameter servers": lambda values: number(values["cpu_cores_parameter_servers"], ".2f"),
    "ms per step, p50": lambda values: number(values["step_ms_p50"], ".1f"),
    "p95": lambda values: number(values["step_ms_p95"], ".1f"),
    "p99": lambda values: number(values["step_ms_p99"], ".1f"),
    "memory, largest process (MB)": lambda values: number(values["memory_largest_process_mb"], ".0f"),
    "peak memory, largest process (MB)": lambda values: number(values["peak_memory_largest_process_mb"], ".0f"),
    "peak memory, whole job (MB)": lambda values: number(values["peak_memory_job_mb"], ".0f"),
    "GPU memory (MB)": lambda values: number(values["gpu_memory_mb"], ".0f"),
    "GPU utilisation": lambda values: number(values["gpu_utilization"], ".0%"),
    "GPU clock (MHz)": lambda values: number(values["gpu_clock_mhz"], ".0f"),
    "GPU throttling": lambda values: values["gpu_throttle"] or EMPTY,
    "GPU power (W)": lambda values: number(values["gpu_power_w"], ".0f"),
    "images per joule": lambda values: number(values["images_per_joule"], ".2f"),
    "cost per million images": lambda values: number(values["cost_per_million_images"], ".4g"),
}
"""The columns of the second table of report.md, from `cost_values`."""


def cost_table(rows: Sequence[ArmRow], price_per_hour: float | None) -> list[list[str]]:
    """The header and a line for each measured arm, without columns that no arm has; empty if no arm was measured."""
    measured = [row for row in rows if row.measured]
    values = [cost_values(row, price_per_hour) for row in measured]
    cells = {name: [column(one) for one in values] for name, column in COST_COLUMNS.items()}
    shown = {name: column for name, column in cells.items() if set(column) - {EMPTY}}
    lines = zip(*shown.values(), strict=True)
    return [["arm", *shown], *([row.label, *line] for row, line in zip(measured, lines, strict=True))] if shown else []


def _mega(size: int | None) -> float | None:
    return None if size is None else size / 1e6


def costs_section(measured: ReportData) -> Section | None:
    """None if nothing was measured."""
    rows = [row for row in measured.rows if row.measured]
    header, *lines = cost_table(rows, measured.price_per_hour) or [[]]
    if not lines:
        return None
    shown = pd.DataFrame(lines, columns=[in_unit(name, rows) for name in header])
    data = pd.DataFrame(
        [{"folder": row.folder, "arm": row.arm, **cost_values(row, measured.price_per_hour)} for row in rows]
    ).convert_dtypes()
    return Section("costs", "What a run costs", (), tables=(Table("costs", "Costs of each arm", shown, data),))
