"""What a run costs besides its time: the columns and the table of a report."""

from typing import Any

import pandas as pd

from tfdist.bench.report.arm_records import label_of
from tfdist.bench.report.costs import PHASES, cost_per_million
from tfdist.bench.report.format import for_unit
from tfdist.bench.report.section import Section
from tfdist.bench.report.summary import ArmRow, ReportData
from tfdist.bench.table import EMPTY, Column, Table

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


COST_COLUMNS = (
    Column("start-up (s)", ("start_first_step_end_s",), "{:.1f}"),
    Column("import (s)", ("start_import_s",), "{:.1f}"),
    Column("strategy (s)", ("start_strategy_s",), "{:.1f}"),
    Column("build (s)", ("start_build_s",), "{:.1f}"),
    Column("trace (s)", ("start_trace_s",), "{:.1f}"),
    Column("CPU s per s", ("cpu_cores",), "{:.2f}"),
    Column("of it parameter servers", ("cpu_cores_parameter_servers",), "{:.2f}"),
    Column("ms per step, p50", ("step_ms_p50",), "{:.1f}"),
    Column("p95", ("step_ms_p95",), "{:.1f}"),
    Column("p99", ("step_ms_p99",), "{:.1f}"),
    Column("memory, largest process (MB)", ("memory_largest_process_mb",), "{:.0f}"),
    Column("peak memory, largest process (MB)", ("peak_memory_largest_process_mb",), "{:.0f}"),
    Column("peak memory, whole job (MB)", ("peak_memory_job_mb",), "{:.0f}"),
    Column("GPU memory (MB)", ("gpu_memory_mb",), "{:.0f}"),
    Column("GPU utilisation", ("gpu_utilization",), "{:.0%}"),
    Column("GPU clock (MHz)", ("gpu_clock_mhz",), "{:.0f}"),
    Column("GPU throttling", ("gpu_throttle",), lambda text: text or EMPTY),
    Column("GPU power (W)", ("gpu_power_w",), "{:.0f}"),
    Column("images per joule", ("images_per_joule",), "{:.2f}"),
    Column("cost per million images", ("cost_per_million_images",), "{:.4g}"),
)
"""The columns of the second table of report.md, from `cost_values`."""


def _mega(size: int | None) -> float | None:
    return None if size is None else size / 1e6


def costs_section(measured: ReportData) -> Section | None:
    """The columns that some arm has; None if nothing was measured."""
    rows = [row for row in measured.rows if row.measured]
    values = [{"folder": row.folder, "arm": row.arm, **cost_values(row, measured.price_per_hour)} for row in rows]
    if not rows:
        return None
    shown = for_unit((Column("arm", ("folder", "arm"), label_of), *COST_COLUMNS), rows)
    table = Table("costs", "Costs of each arm", pd.DataFrame(values).convert_dtypes(), shown)
    return Section("costs", "What a run costs", (), tables=(table,))
