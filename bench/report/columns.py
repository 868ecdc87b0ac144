"""The columns of a row: exact values for files, formatted text for readers. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from tfdist.bench.report.baseline import VersusBaseline
from tfdist.bench.report.format import EMPTY, interval, number
from tfdist.bench.report.sections.costs import cost_values
from tfdist.bench.report.summary import ArmRow

Scaling = Literal["weak", "strong", "mixed"]

DESCRIPTIONS = {
    "weak": "Weak scaling: every device has the same batch, so more devices do more work in a step",
    "strong": "Strong scaling: the global batch is the same, so more devices share the work of a step",
    "mixed": "Mixed scaling: neither the batch per device nor the global batch is the same in all rows",
}


def scaling_of(rows: Sequence[ArmRow]) -> Scaling:
    """The scaling that the batch sizes within each folder show; `weak` if they show both. Unknown sizes are ignored."""
    known = [row for row in rows if row.batch_per_replica and row.batch_global]
    if _same_within_folders((row.folder, row.batch_per_replica) for row in known):
        return "weak"
    return "strong" if _same_within_folders((row.folder, row.batch_global) for row in known) else "mixed"


def _same_within_folders(sizes: Iterable[tuple[str, int | None]]) -> bool:
    distinct = set(sizes)
    return len(distinct) == len({folder for folder, _ in distinct})


def _parts(versus: VersusBaseline | None) -> dict[str, Any]:
    if versus is None:
        return dict.fromkeys(("label", "ratio", "low", "high", "level", "verdict", "efficiency"))
    limits = versus.comparison.interval
    return {
        "label": versus.label,
        "ratio": versus.comparison.ratio,
        "low": limits.low if limits else None,
        "high": limits.high if limits else None,
        "level": limits.level if limits else None,
        "verdict": str(versus.comparison.verdict),
        "efficiency": versus.efficiency,
    }


def values_of(row: ArmRow, scaling: str, price_per_hour: float | None = None) -> dict[str, Any]:
    """Every column of report.csv and report.json, documented in bench_results/README.md; None: not measured."""
    one, independent = _parts(row.one_device), _parts(row.independent)
    return {
        "folder": row.folder,
        "arm": row.arm,
        "strategy": str(row.strategy),
        "kind": row.kind,
        "exchange": str(row.exchange),
        "scaling": scaling,
        "hosts": row.hosts,
        "link_mbit_per_s": _mbit_per_s(row.link) if row.link else None,
        "link_rtt_ms": row.link["rtt_s"] * 1e3 if row.link else None,
        "devices": row.devices,
        "batch_per_replica": row.batch_per_replica,
        "batch_global": row.batch_global,
        "images_per_s": row.images_per_s,
        "images_per_s_low": row.spread.low if row.spread else None,
        "images_per_s_high": row.spread.high if row.spread else None,
        "images_per_s_per_device": row.per_device,
        "baseline": one["label"],
        "speed_up": one["ratio"],
        "speed_up_low": one["low"],
        "speed_up_high": one["high"],
        "speed_up_level": one["level"],
        "verdict": one["verdict"],
        "efficiency": one["efficiency"],
        "baseline_independent": independent["label"],
        "efficiency_vs_independent": independent["efficiency"],
        "efficiency_vs_independent_low": independent["low"],
        "efficiency_vs_independent_high": independent["high"],
        "verdict_vs_independent": independent["verdict"],
        **cost_values(row, price_per_hour),
        "rounds": row.rounds,
        "rounds_planned": row.rounds_planned,
        "status": row.status,
        "reason": row.reason,
    }


COLUMNS: Mapping[str, Callable[[ArmRow], str]] = {
    "arm": lambda row: row.label,
    "kind": lambda row: row.kind,
    "hosts": lambda row: str(row.hosts),
    "link": lambda row: _link(row.link),
    "sync or async": lambda row: str(row.exchange),
    "devices": lambda row: number(row.devices, "d"),
    "batch per device": lambda row: number(row.batch_per_replica, "d"),
    "batch global": lambda row: number(row.batch_global, "d"),
    "images/s (whole job)": lambda row: number(row.images_per_s, ".1f"),
    "95 % interval": lambda row: interval(row.spread, ".1f"),
    "images/s per device": lambda row: number(row.per_device, ".1f"),
    "speed-up": lambda row: number(_parts(row.one_device)["ratio"], ".2f"),
    "speed-up interval": lambda row: interval(row.one_device.comparison.interval if row.one_device else None, ".2f"),
    "against one device": lambda row: _verdict(row),
    "efficiency": lambda row: number(_parts(row.one_device)["efficiency"], ".0%"),
    "efficiency vs independent": lambda row: number(_parts(row.independent)["efficiency"], ".0%"),
    "rounds": lambda row: f"{row.rounds} of {row.rounds_planned}",
    "status": lambda row: f"{row.status}: {row.reason}" if row.reason else row.status,
}
"""The columns of the first table of report.md."""
_SEVERAL_HOSTS = ("hosts", "link")
"""Columns shown only if an arm has several hosts."""

SHORT = ("arm", "sync or async", "devices", "images/s (whole job)", "95 % interval", "speed-up", "efficiency")
"""The columns for a terminal."""
NARROW = ("arm", "images/s (whole job)", "speed-up", "efficiency")
"""The columns for a narrow one."""
NARROWEST = ("arm", "images/s (whole job)")


def columns_of(rows: Sequence[ArmRow]) -> tuple[str, ...]:
    """The names of the first table's columns for these rows."""
    several = any(row.hosts > 1 for row in rows)
    return tuple(name for name in COLUMNS if several or name not in _SEVERAL_HOSTS)


def _mbit_per_s(link: Mapping[str, float]) -> float:
    return link["bytes_per_s"] * 8 / 1e6


def _link(link: Mapping[str, float]) -> str:
    return f"{_mbit_per_s(link):.0f} Mbit/s, {link['rtt_s'] * 1e3:.2f} ms" if link else EMPTY


def _verdict(row: ArmRow) -> str:
    if row.one_device is None:
        return EMPTY
    return "baseline" if row.one_device.label == row.label else str(row.one_device.comparison.verdict)
