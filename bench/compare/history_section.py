"""The arms of many benches as a chart and a table."""

from collections.abc import Iterator
from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from tfdist.bench.compare.history import BenchHistory, values_of
from tfdist.bench.report.across import OTHER_MACHINE
from tfdist.bench.report.figures.colors import PALETTE
from tfdist.bench.report.format import between, for_unit, in_unit
from tfdist.bench.report.section import Chart, Section
from tfdist.bench.statistics import ArmVerdict
from tfdist.bench.table import EMPTY, Column, Table
from tfdist.launch.text import counted, shortened

_MARKERS = "os^Dvp"
_MOST_DRAWN = 12
"""More arms than this are in the table only."""


def history_section(history: BenchHistory) -> Section:
    """The whole history."""
    table = history_table(history)
    return Section(
        key="history",
        title=f"{counted(len(history.arms), 'arm')} over time",
        answer=tuple(_answers(history)),
        charts=tuple(_charts(history, table.data)) if history.points else (),
        tables=(table,),
        notes=(
            "Benches are in order of time, not to scale. Images/s follow the machine's speed, which differs from one "
            "day to the next; a speed-up over one device does so much less.",
            "An arm is compared with the last bench before that measured it, by its speed-up over one device if both "
            "have one. Intervals are widened for the number of arms of a bench (Holm), not for the number of benches.",
        ),
    )


HISTORY_COLUMNS = (
    Column("arm", ("arm",)),
    Column("started", ("started",), lambda text: text[:16].replace("T", " ")),
    Column("commit", ("commit",), lambda text: text[:9] or EMPTY),
    Column("bench", ("bench",)),
    Column("images/s", ("images_per_s",), "{:.1f}"),
    Column("95 % interval", ("images_per_s_low", "images_per_s_high"), "{:.1f} to {:.1f}"),
    Column("speed-up", ("speed_up",), "{:.2f}"),
    Column("since the last", ("since_last",), "{:.3f}"),
    Column("interval", ("since_last_low", "since_last_high"), "{:.3f} to {:.3f}"),
    Column("verdict", ("since_last_verdict", "not_compared"), lambda verdict, reason: verdict or reason or EMPTY),
    Column("note", ("other_machine",), lambda other: OTHER_MACHINE if other else ""),
)


def history_table(history: BenchHistory) -> Table:
    """A row for each arm of each bench: arm by arm, each in order of time."""
    arms = history.arms
    points = sorted(history.points, key=lambda point: arms.index(point.row.arm))
    columns = for_unit(HISTORY_COLUMNS, [point.row for point in points])
    return Table("history", "Every arm in order of time", pd.DataFrame(map(values_of, points)), columns)


def _answers(history: BenchHistory) -> Iterator[str]:
    any_decided = False
    for point in history.points:
        change = point.change
        found = change.comparison if change else None
        if change is None or found is None or found.verdict is ArmVerdict.CANNOT_TELL:
            continue
        any_decided = True
        commit = f" (commit {point.bench.commit[:9]})" if point.bench.commit else ""
        options = f", with {'; '.join(change.options)}" if change.options else ""
        yield (
            f"{point.row.arm} became {found.verdict} in {point.bench.name}{commit}: {found.ratio:.2f} times"
            f"{between(found.interval, '.2f')}{options}."
        )
    if not history.decided:
        yield "Nothing compared: no arm has an interval of its change from one bench to the next."
    elif not any_decided:
        yield "No measurable change of any arm from one bench to the next."


def _charts(history: BenchHistory, every: pd.DataFrame) -> Iterator[Chart]:
    arms = history.arms[:_MOST_DRAWN]
    left = f" The chart has the first {_MOST_DRAWN} arms." if len(history.arms) > len(arms) else ""
    for name, title, unit, key in (
        ("history-images-per-s", "Images/s over time", "images/s of the whole job", "images_per_s"),
        ("history-speed-up", "Speed-up over one device over time", "speed-up over one device", "speed_up"),
    ):
        title, unit = (in_unit(text, [point.row for point in history.points]) for text in (title, unit))
        data = every[every["arm"].isin(arms) & every[key].notna()]
        texts = [
            f"{arm} from {rows[key].iloc[0]:.3g} to {rows[key].iloc[-1]:.3g}"
            for arm, rows in data.groupby("arm", sort=False)
        ]
        alt = f"{title}, {len(history.benches)} benches: {shortened(texts, 12)}.{left}"
        if texts:
            yield Chart(name, title, alt, partial(_paint, history=history, data=data, key=key, unit=unit), data)


def _paint(axes: Axes, history: BenchHistory, data: pd.DataFrame, key: str, unit: str) -> None:
    places = {bench.name: place for place, bench in enumerate(history.benches)}
    for index, (arm, rows) in enumerate(data.groupby("arm", sort=False)):
        color, marker = PALETTE[index % len(PALETTE)], _MARKERS[index // len(PALETTE) % len(_MARKERS)]
        at = [places[bench] for bench in rows["bench"]]
        axes.plot(at, rows[key], marker=marker, color=color, lw=1.4, ms=5, label=str(arm))
        for row in rows.dropna(subset=f"{key}_low").to_dict("records"):
            limits = [row[f"{key}_low"], row[f"{key}_high"]]
            axes.plot([places[row["bench"]]] * 2, limits, color=color, lw=1.2, marker="_", ms=6)
    ticks = [f"{bench.started[:10]}\n{bench.commit[:9]}".strip() for bench in history.benches]
    every = len(ticks) // 12 + 1 if len(ticks) > 12 else 1
    axes.set_xticks(range(0, len(ticks), every), ticks[::every], fontsize=8)
    axes.set_xlim(-0.5, len(ticks) - 0.5)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit)
