"""The columns of a row: exact values for files, formatted text for readers. Pure."""

from collections.abc import Sequence
from typing import Any, Literal

import pandas as pd

from tfdist.bench.report.arm_records import label_of
from tfdist.bench.report.format import ends, for_unit
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.table import EMPTY, STATUS, Column
from tfdist.models.record import RecordStatus

Scaling = Literal["weak", "strong", "mixed", "unknown"]

DESCRIPTIONS = {
    "weak": "Weak scaling: every device has the same batch, so more devices do more work in a step",
    "strong": "Strong scaling: the global batch is the same, so more devices share the work of a step",
    "unknown": "The batch sizes are not known, so this may be weak or strong scaling",
    "mixed": "Mixed scaling: neither the batch per device nor the global batch is the same in all rows",
}


def scaling_of(rows: Sequence[ArmRow]) -> Scaling:
    """The scaling that the batch sizes within each folder show; `weak` if they show both. Unknown sizes are ignored."""
    known = [row for row in rows if row.batch_per_replica and row.batch_global]
    if not known:
        return "unknown"
    folders = len({row.folder for row in known})
    if len({(row.folder, row.batch_per_replica) for row in known}) == folders:
        return "weak"
    return "strong" if len({(row.folder, row.batch_global) for row in known}) == folders else "mixed"


def values_of(row: ArmRow, scaling: str) -> dict[str, Any]:
    """Every column of report.csv and report.json, documented in bench_results/README.md; None: not measured."""
    one, independent = row.one_device, row.independent
    limits = one.comparison.interval if one else None
    return {
        "folder": row.folder,
        "arm": row.arm,
        "strategy": str(row.strategy),
        "kind": row.kind,
        "exchange": str(row.exchange),
        "scaling": scaling,
        "hosts": row.hosts,
        "link_mbit_per_s": row.link["bytes_per_s"] * 8 / 1e6 if row.link else None,
        "link_rtt_ms": row.link["rtt_s"] * 1e3 if row.link else None,
        "devices": row.devices,
        "batch_per_replica": row.batch_per_replica,
        "batch_global": row.batch_global,
        "images_per_s": row.images_per_s,
        **ends("images_per_s", row.spread),
        "images_per_s_per_device": row.per_device,
        "baseline": one.label if one else None,
        "speed_up": one.comparison.ratio if one else None,
        **ends("speed_up", limits),
        "speed_up_level": limits.level if limits else None,
        "verdict": str(one.comparison.verdict) if one else None,
        "efficiency": one.efficiency if one else None,
        "baseline_independent": independent.label if independent else None,
        "efficiency_vs_independent": independent.efficiency if independent else None,
        **ends("efficiency_vs_independent", independent.comparison.interval if independent else None),
        "verdict_vs_independent": str(independent.comparison.verdict) if independent else None,
        **row.costs,
        "rounds": row.rounds,
        "rounds_planned": row.rounds_planned,
        "status": row.status,
        "reason": row.reason,
        "strategy_check": row.starts[0].strategy_check if row.starts else None,
    }


_OF_CHARTS = (
    "folder", "arm", "kind", "exchange", "devices", "images_per_s", "images_per_s_low", "images_per_s_high", "speed_up",
    "speed_up_low", "speed_up_high", "efficiency", "status",
)  # fmt: skip


def without_refused(rows: Sequence[ArmRow]) -> Sequence[ArmRow]:
    """The rows of tables and charts: without the arms that were refused, unless all were."""
    return tuple(row for row in rows if row.status != RecordStatus.REFUSED) or rows


def chart_data(rows: Sequence[ArmRow]) -> pd.DataFrame:
    """The columns of `values_of` that charts show, and the ideal."""
    scaling = scaling_of(rows)
    every = pd.DataFrame([values_of(row, scaling) for row in rows]).convert_dtypes()
    ideal = pd.array([row.ideal for row in rows], dtype="Float64")
    table: pd.DataFrame = every[list(_OF_CHARTS)].assign(images_per_s_ideal=ideal)
    return table


def _verdict(folder: str, arm: str, baseline: str | None, verdict: str | None) -> str:
    return "baseline" if baseline == label_of(folder, arm) else verdict or EMPTY


COLUMNS = (
    Column("arm", ("folder", "arm"), label_of),
    Column("images/s (whole job)", ("images_per_s",), "{:.1f}"),
    Column("95 % interval", ("images_per_s_low", "images_per_s_high"), "{:.1f} to {:.1f}"),
    Column("speed-up", ("speed_up",), "{:.2f}"),
    Column("speed-up interval", ("speed_up_low", "speed_up_high"), "{:.2f} to {:.2f}"),
    Column("against the baseline", ("folder", "arm", "baseline", "verdict"), _verdict),
    Column("efficiency", ("efficiency",), "{:.0%}"),
    Column("efficiency vs independent", ("efficiency_vs_independent",), "{:.0%}"),
    Column("devices", ("devices",)),
    Column("images/s per device", ("images_per_s_per_device",), "{:.1f}"),
    Column("batch per device", ("batch_per_replica",), "{:.6g}"),
    Column("batch global", ("batch_global",)),
    Column("kind", ("kind",)),
    Column("sync or async", ("exchange",)),
    Column("hosts", ("hosts",)),
    Column("link", ("link_mbit_per_s", "link_rtt_ms"), "{:.0f} Mbit/s, {:.2f} ms"),
    Column("rounds", ("rounds", "rounds_planned"), "{} of {}"),
    STATUS,
)
"""The columns of the first table of report.md, from `values_of`: the answer first, so that it needs no scrolling."""
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
)
"""The columns of the second table of report.md, from `ArmRow.costs`."""

SHORT = ("arm", "sync or async", "devices", "images/s (whole job)", "95 % interval", "speed-up", "efficiency")
"""The columns for a terminal."""
NARROW = ("arm", "images/s (whole job)", "speed-up", "efficiency")
"""The columns for a narrow one."""
NARROWEST = ("arm", "images/s (whole job)")


def columns_for(rows: Sequence[ArmRow], names: Sequence[str] = ()) -> list[Column]:
    """The columns of the first table for these rows, or those called `names`."""
    several = any(row.hosts > 1 for row in rows)
    shown = [each for each in COLUMNS if several or each.title not in ("hosts", "link")]
    return for_unit([each for each in shown if not names or each.title in names], rows)
