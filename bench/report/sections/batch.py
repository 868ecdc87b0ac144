"""The section on batch sizes: throughput and memory of arms that differ in nothing else."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from tfdist.bench.references import identity
from tfdist.bench.report.arm_records import mark_seconds
from tfdist.bench.report.figures.arm_chart import described
from tfdist.bench.report.figures.colors import PALETTE
from tfdist.bench.report.format import ends, three_digits, up_to
from tfdist.bench.report.section import Chart, Section
from tfdist.bench.report.summary import ArmRow, ReportData, at_most_slower, fastest, others_over
from tfdist.bench.statistics import ArmVerdict
from tfdist.bench.table import STATUS, Column, Table
from tfdist.launch.text import counted

_MOST_TICKS = 12
"""More batch sizes are not named on the axis."""
FEWEST = 4
"""Batch sizes of a series: fewer are a comparison of arms, not a sweep."""
_FREE = ("batch_size", "learning_rate", "seed")
"""Fields of a spec in which the arms of a series may differ."""
Series = Mapping[str, Sequence[ArmRow]]
"""Name of a series -> its arms by batch size, the smallest first."""


def series_of(rows: Sequence[ArmRow]) -> list[list[ArmRow]]:
    """Arms that differ in nothing but their batch size, the smallest first."""
    grouped: dict[tuple[Any, ...], dict[float, ArmRow]] = {}
    for row in rows:
        if row.batch_per_replica is not None and row.records:
            key = (row.folder, row.hosts, identity(_fixed(row)))
            grouped.setdefault(key, {}).setdefault(row.batch_per_replica, row)
    return [[each[size] for size in sorted(each)] for each in grouped.values() if len(each) >= FEWEST]


def ranked(series: Sequence[ArmRow]) -> list[ArmRow]:
    """The measured arms of a series that are valid: the fastest of them is compared with the others."""
    return [row for row in series if row.images_per_s and row.valid]


def batch_section(measured: ReportData) -> Section | None:
    """None without a series."""
    found = series_of(measured.rows)
    if not found:
        return None
    series = {
        _name(one[0], [other[0] for other in found if other[0].strategy == one[0].strategy]): one for one in found
    }
    data = pd.DataFrame([_values(row) for one in found for row in one])
    images_per_s = "images/s of the whole job"
    return Section(
        key="batch",
        title="Batch sizes",
        answer=tuple(text for name, one in series.items() for text in _answer(one, name)),
        charts=(
            _chart(series, "batch_throughput", "Images/s by batch size", images_per_s, lambda row: row.images_per_s),
            _chart(series, "batch_memory", "Memory by batch size", "MB of the largest process or GPU", _megabytes),
        ),
        tables=(Table("batch", "Throughput and memory of each batch size", data, COLUMNS),),
        notes=(
            "Memory is the highest resident memory of the largest process since its start, import and trace included; "
            "on a GPU, what TensorFlow has allocated on it at most.",
        ),
    )


def _fixed(row: ArmRow) -> Mapping[str, Any]:
    return {key: value for key, value in row.records[0].spec.items() if key not in _FREE}


def _name(row: ArmRow, alike: Sequence[ArmRow]) -> str:
    """The strategy of a series, with what distinguishes it from the others of this strategy."""
    parts = [row.folder] if len({other.folder for other in alike}) > 1 else []
    parts += [counted(row.hosts, "host")] if len({other.hosts for other in alike}) > 1 else []
    specs = [_fixed(other) for other in alike]
    for key, value in _fixed(row).items():
        if any(spec.get(key) != value for spec in specs):
            parts.append(f"{key.replace('_', ' ')} {value}")
    return ", ".join([row.strategy, *parts])


def _answer(series: Sequence[ArmRow], name: str) -> Iterator[str]:
    """The batch size from which on a larger one is not measurably faster, and where memory ended."""
    if ran := ranked(series):
        best = fastest(ran)
        compared = {row.label: each for row, each in others_over(best, ran)}
        # without an interval nothing is known of a size
        left = {label for label, each in compared.items() if not each.interval or each.verdict is ArmVerdict.SLOWER}
        enough = next(row for row in ran if row.label not in left)
        text = f"{name}: batch {best.batch_per_replica} has the most images/s, {three_digits(best.rate)}"
        sure = f": at most {up_to(at_most_slower([compared[enough.label]]))}" if enough is not best else ""
        smaller = f"; batch {enough.batch_per_replica} is the smallest that is not measurably slower{sure}"
        yield mark_seconds(f"{text}{smaller if enough is not best else ''}.", ran)
    if failed := next((row for row in series if not row.measured and row.reason), None):
        yield f"{name}: batch {failed.batch_per_replica} did not run: {failed.reason}."


def _megabytes(row: ArmRow) -> float | None:
    gpu = max((peak for record in row.measured for rank in record.ranks for peak in rank.gpu_peak_bytes), default=None)
    size: float | None = row.costs["peak_memory_largest_process_mb"] if gpu is None else gpu / 1e6
    return size


def _chart(series: Series, name: str, title: str, label: str, value: Callable[[ArmRow], float | None]) -> Chart:
    points = [(row, figure) for one in series.values() for row in one if (figure := value(row)) is not None]
    texts = described(f"{row.label}: {figure:.0f}" for row, figure in points)
    data = [{"arm": row.label, "batch_per_device": row.batch_per_replica, label: figure} for row, figure in points]

    def paint(axes: Axes) -> None:
        for index, (name, one) in enumerate(series.items()):
            line = [(row.batch_per_replica, figure) for row in one if (figure := value(row)) is not None]
            color = PALETTE[index % len(PALETTE)]
            axes.plot(*zip(*line, strict=True), marker="o", color=color, label=name) if line else None
        sizes = sorted({row.batch_per_replica for one in series.values() for row in one if row.batch_per_replica})
        shown = sizes[:: 1 + len(sizes) // _MOST_TICKS]
        axes.set_xscale("log", base=2)
        axes.set_xticks(shown, list(map(str, shown)))
        axes.minorticks_off()
        axes.set_xlabel("batch per device")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)

    return Chart(name, title, f"{label} over the batch size. {texts}.", paint, pd.DataFrame(data))


COLUMNS = (
    Column("arm", ("arm",)),
    Column("batch per device", ("batch_per_device",)),
    Column("images/s", ("images_per_s",), "{:.1f}"),
    Column("95 % interval", ("images_per_s_low", "images_per_s_high"), "{:.1f} to {:.1f}"),
    Column("ms per step", ("ms_per_step",), "{:.1f}"),
    Column("memory (MB)", ("memory_mb",), "{:.0f}"),
    STATUS,
)


def _values(row: ArmRow) -> Mapping[str, Any]:
    return {
        "arm": row.label,
        "strategy": row.strategy,
        "batch_per_device": row.batch_per_replica,
        "images_per_s": row.images_per_s,
        **ends("images_per_s", row.spread),
        "ms_per_step": row.costs["step_ms_p50"],
        "memory_mb": _megabytes(row),
        "status": row.status,
        "reason": row.reason,
    }
