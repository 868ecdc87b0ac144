"""Single-card, multi-card and multi-node, synchronous and asynchronous, side by side: the fastest arm of each kind."""

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from tfdist.bench.report.arm_records import label_of
from tfdist.bench.report.columns import chart_data, columns_for, scaling_of, values_of
from tfdist.bench.report.figures.arm_chart import draw_interval, figure_text, name_rows, write
from tfdist.bench.report.figures.colors import EXCHANGE
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
_CAUTION = "The fastest of many arms is fastest partly by chance: a kind with more arms has an advantage here."
_LEARNING = "Throughput does not say how much a model learns from an example: asynchronous updates are stale."
_Kinds = Mapping[str, Sequence[ArmRow]]
"""Name of a kind: folder, hardware, exchange -> its arms."""


def kinds_section(measured: ReportData) -> Section | None:
    """None with fewer than two kinds."""
    kinds = _by_kind(measured.rows)
    if len(kinds) < 2:
        return None
    scaling = scaling_of(measured.rows)
    values = [{"name": name, "arms": len(rows), **values_of(fastest(rows), scaling)} for name, rows in kinds.items()]
    data = pd.DataFrame(values).convert_dtypes()
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
        charts=(_chart(measured.rows, kinds),),
        tables=(Table("fastest_of_kind", "The fastest arm of each kind", data, columns),),
        notes=(
            *((_CAUTION,) if any(len(rows) > 1 for rows in kinds.values()) else ()),
            *((_LEARNING,) if any(rows[0].exchange is Exchange.ASYNC for rows in kinds.values()) else ()),
        ),
    )


def _by_kind(rows: Sequence[ArmRow]) -> _Kinds:
    """The measured arms that may be ranked, in the order of folders, hardware and exchange."""
    kinds: dict[str, list[ArmRow]] = {}
    for folder in dict.fromkeys(row.folder for row in rows):
        measured = [row for row in rows if row.folder == folder and row.measured]
        left = rank(measured)[1]
        for row in sorted(measured, key=lambda row: (_ORDER.index(row.kind), [*EXCHANGE].index(row.exchange))):
            if row.label not in left:
                kinds.setdefault(label_of(folder, f"{row.kind}, {row.exchange}"), []).append(row)
    return kinds


def sync_and_async(rows: Sequence[ArmRow]) -> Iterator[tuple[ArmRow, ArmRow]]:
    """The fastest synchronous arm on several devices of each folder and the fastest asynchronous one."""
    best = [fastest(of_kind) for of_kind in _by_kind(rows).values()]
    sure = [row for row in best if (row.devices or 0) > 1 and row.rounds >= FEWEST_ROUNDS]
    for folder in dict.fromkeys(row.folder for row in sure):
        sync, others = (
            [row for row in sure if row.folder == folder and row.exchange is exchange]
            for exchange in (Exchange.SYNC, Exchange.ASYNC)
        )
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


def _chart(rows: Sequence[ArmRow], kinds: _Kinds) -> Chart:
    def paint(axes: Axes) -> None:
        for index, arms in enumerate(kinds.values()):
            best, (color, words) = fastest(arms), EXCHANGE[arms[0].exchange]
            others = [row.rate for row in arms if row is not best]
            axes.scatter(
                others, [index] * len(others), s=22, color=color, alpha=0.4, lw=0, label=_OTHERS if others else None
            )
            high = draw_interval(axes, best.spread, best.rate, index)
            axes.scatter([best.rate], [index], s=64, color=color, zorder=3, label=words)
            write(axes, f"{best.images_per_s:.0f}  {best.arm}", high, index)
        name_rows(axes, list(kinds))
        axes.set_xlabel(in_unit("images/s of the whole job", rows))
        axes.margins(x=0.08)
        axes.set_xlim(left=0, right=1.45 * max(row.rate for arms in kinds.values() for row in arms))

    best = "; ".join(f"{name}: {fastest(arms).arm} {figure_text(fastest(arms))}" for name, arms in kinds.items())
    alt, data = f"The fastest arm of each kind: {best}.", chart_data([row for arms in kinds.values() for row in arms])
    return Chart("kinds", "The fastest arm of each kind", alt, paint, data, 0.8 + 0.42 * len(kinds))
