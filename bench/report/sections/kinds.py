"""Single-card, multi-card and multi-node, synchronous and asynchronous, side by side: the fastest arm of each kind."""

from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.axes import Axes

from tfdist.bench.report.arm_records import label_of
from tfdist.bench.report.columns import chart_data, columns_for, scaling_of, values_of
from tfdist.bench.report.figures.arm_chart import EXCHANGE, draw_interval, figure_text, name_rows, write
from tfdist.bench.report.format import between, difference, in_unit
from tfdist.bench.report.section import Chart, Section
from tfdist.bench.report.summary import ArmRow, ReportData, fastest, others_over, rank
from tfdist.bench.statistics import FEWEST_ROUNDS
from tfdist.bench.table import Column, Table
from tfdist.strategies.catalog import Exchange

_ORDER = ("single-card", "multi-card", "multi-node (one host)", "multi-node")
_SHOWN = (
    "devices", "images/s (whole job)", "95 % interval", "images/s per device", "speed-up", "speed-up interval",
    "efficiency",
)  # fmt: skip
_OTHERS = "pale: the other arms of the kind"
_CAUTION = "The fastest of many arms was also lucky: a kind with more arms has an advantage in this comparison."
_LEARNING = "Throughput does not say how much a model learns from an example: asynchronous updates are stale."
_Kind = tuple[str, str, Exchange]
"""Folder, kind of hardware, exchange."""


def kinds_section(measured: ReportData) -> Section | None:
    """None with fewer than two kinds."""
    kinds = _by_kind(measured.rows)
    if len(kinds) < 2:
        return None
    best_of = {kind: fastest(rows) for kind, rows in kinds.items()}
    scaling = scaling_of(measured.rows)
    data = pd.DataFrame(
        [{"name": _name(kind), "arms": len(kinds[kind]), **values_of(row, scaling)} for kind, row in best_of.items()]
    ).convert_dtypes()
    columns = (
        Column("kind", ("name",)),
        Column("arms", ("arms",)),
        Column("fastest", ("arm",)),
        *columns_for(measured.rows, _SHOWN),
    )
    return Section(
        "kinds",
        "One card, many cards, many nodes",
        tuple(in_unit(text, measured.rows) for text in _sync_against_async(measured.rows)),
        charts=(_chart(measured.rows, kinds, best_of),),
        tables=(Table("fastest_of_kind", "The fastest arm of each kind", data, columns),),
        notes=(
            *((_CAUTION,) if any(len(rows) > 1 for rows in kinds.values()) else ()),
            *((_LEARNING,) if any(exchange is Exchange.ASYNC for _, _, exchange in kinds) else ()),
        ),
    )


def _by_kind(rows: Sequence[ArmRow]) -> dict[_Kind, list[ArmRow]]:
    """The measured arms that may be ranked, in the order of folders, hardware and exchange."""
    folders, exchanges = list(dict.fromkeys(row.folder for row in rows)), list(EXCHANGE)
    measured = [row for row in rows if row.measured]
    left = {label for folder in folders for label in rank([row for row in measured if row.folder == folder])[1]}
    ranked = [row for row in measured if row.label not in left]

    def place(row: ArmRow) -> tuple[int, int, int]:
        return folders.index(row.folder), _ORDER.index(row.kind), exchanges.index(row.exchange)

    kinds: dict[_Kind, list[ArmRow]] = {}
    for row in sorted(ranked, key=place):
        kinds.setdefault((row.folder, row.kind, row.exchange), []).append(row)
    return kinds


def _name(kind: _Kind) -> str:
    folder, hardware, exchange = kind
    return label_of(folder, f"{hardware}, {exchange}")


def sync_and_async(rows: Sequence[ArmRow]) -> Iterator[tuple[ArmRow, ArmRow]]:
    """The fastest synchronous arm on several devices of each folder and the fastest asynchronous one."""
    best_of = {kind: fastest(of_kind) for kind, of_kind in _by_kind(rows).items()}
    for folder in dict.fromkeys(key[0] for key in best_of):
        several = [row for key, row in best_of.items() if key[0] == folder and (row.devices or 0) > 1]
        sure = [row for row in several if row.rounds >= FEWEST_ROUNDS]
        sync = [row for row in sure if row.exchange is Exchange.SYNC]
        others = [row for row in sure if row.exchange is Exchange.ASYNC]
        if sync and others:
            yield fastest(sync), fastest(others)


def _sync_against_async(rows: Sequence[ArmRow]) -> Iterator[str]:
    for best, other in sync_and_async(rows):
        ((_, comparison),) = others_over(other, [best])
        yield (
            f"{best.label}, the fastest synchronous arm on several devices, reaches {comparison.ratio:.2f} times "
            f"the images/s of {other.label}, the fastest asynchronous one{between(comparison.interval, '.2f')}: "
            f"{difference(comparison)}."
        )


def _chart(rows: Sequence[ArmRow], kinds: dict[_Kind, list[ArmRow]], best_of: dict[_Kind, ArmRow]) -> Chart:
    def paint(axes: Axes) -> None:
        for index, (kind, arms) in enumerate(kinds.items()):
            color, words = EXCHANGE[kind[2]]
            others = [row.rate for row in arms if row is not best_of[kind]]
            axes.scatter(others, [index] * len(others), s=22, color=color, alpha=0.4, lw=0, label=_OTHERS)
            best = best_of[kind]
            if best.spread:
                draw_interval(axes, best.spread.low, best.spread.high, index)
            axes.scatter([best.rate], [index], s=64, color=color, zorder=3, label=words)
            high = best.spread.high if best.spread else best.rate
            write(axes, f"{best.images_per_s:.0f}  {best.arm}", high, index)
        name_rows(axes, [_name(kind) for kind in kinds])
        axes.set_xlabel(in_unit("images/s of the whole job", rows))
        axes.margins(x=0.08)
        axes.set_xlim(left=0, right=1.45 * max(row.rate for row in best_of.values()))

    alt = "The fastest arm of each kind: " + "; ".join(
        f"{_name(kind)}: {row.arm} {figure_text(row)}" for kind, row in best_of.items()
    )
    data = chart_data([row for arms in kinds.values() for row in arms])
    return Chart("kinds", "The fastest arm of each kind", f"{alt}.", paint, data, 0.8 + 0.42 * len(kinds))
