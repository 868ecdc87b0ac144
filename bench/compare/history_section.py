"""The arms of many benches as a chart and a table."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tfdist.bench.compare.history import BenchHistory, BenchPoint, values_of
from tfdist.bench.report.across import OTHER_MACHINE
from tfdist.bench.report.figures.colors import PALETTE
from tfdist.bench.report.format import between
from tfdist.bench.report.section import Chart, Section
from tfdist.bench.statistics import ArmVerdict, Interval
from tfdist.bench.table import EMPTY, Column, Table
from tfdist.launch.text import counted, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = "os^Dvp"
_MOST_DRAWN = 12
"""More arms than this are in the table only."""


def history_section(history: BenchHistory) -> Section:
    """The whole history."""
    return Section(
        key="history",
        title=f"{counted(len(history.arms), 'arm')} over time",
        answer=tuple(_answers(history)),
        charts=tuple(_charts(history)),
        tables=(history_table(history),),
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
    """A row for each arm of each bench."""

    data = pd.DataFrame([values_of(point) for point in in_order(history)])
    return Table("history", "Every arm in order of time", data, HISTORY_COLUMNS)


def in_order(history: BenchHistory) -> list[BenchPoint]:
    """Arm by arm, each in order of time."""
    return [point for arm in history.arms for point in history.points if point.arm == arm]


def _answers(history: BenchHistory) -> Iterator[str]:
    decided = [each for each in history.points if _verdict(each) not in (None, ArmVerdict.CANNOT_TELL)]
    for point in decided:
        found = point.change.comparison if point.change else None
        if found:
            commit = f" (commit {point.bench.commit[:9]})" if point.bench.commit else ""
            options = f", with {'; '.join(point.change.options)}" if point.change and point.change.options else ""
            yield (
                f"{point.arm} became {found.verdict} in {point.bench.name}{commit}: {found.ratio:.2f} times"
                f"{between(found.interval, '.2f')}{options}."
            )
    if not history.decided:
        yield "Nothing compared: no arm has an interval of its change from one bench to the next."
    elif not decided:
        yield "No measurable change of any arm from one bench to the next."


def _verdict(point: BenchPoint) -> ArmVerdict | None:
    return point.change.comparison.verdict if point.change and point.change.comparison else None


_Value = Callable[[BenchPoint], tuple[float, Interval | None] | None]


def _images(point: BenchPoint) -> tuple[float, Interval | None] | None:
    return None if point.row.images_per_s is None else (point.row.images_per_s, point.row.spread)


def _speed_up(point: BenchPoint) -> tuple[float, Interval | None] | None:
    over = point.row.one_device
    return None if over is None or over.label == point.row.label else (over.comparison.ratio, over.comparison.interval)


def _charts(history: BenchHistory) -> Iterator[Chart]:

    arms = history.arms[:_MOST_DRAWN]
    left = f" The chart has the first {_MOST_DRAWN} arms." if len(history.arms) > len(arms) else ""
    for name, title, unit, value in (
        ("history-images-per-s", "Images/s over time", "images/s of the whole job", _images),
        ("history-speed-up", "Speed-up over one device over time", "speed-up over one device", _speed_up),
    ):
        drawn = [point for point in in_order(history) if point.arm in arms and value(point)]
        if drawn:
            data = pd.DataFrame([values_of(point) for point in drawn])
            texts = []
            for arm in arms:
                values = [found[0] for point in drawn if point.arm == arm and (found := value(point))]
                texts += [f"{arm} from {values[0]:.3g} to {values[-1]:.3g}"] if values else []
            alt = f"{title}, {len(history.benches)} benches: {shortened(texts, 12)}.{left}"
            yield Chart(name, title, alt, _painter(history, drawn, value, unit), data)


def _painter(history: BenchHistory, drawn: Sequence[BenchPoint], value: _Value, unit: str) -> "Callable[[Axes], None]":
    places = {bench: place for place, bench in enumerate(history.benches)}

    def paint(axes: "Axes") -> None:
        for index, arm in enumerate(dict.fromkeys(point.arm for point in drawn)):
            found = [(places[p.bench], each) for p in drawn if p.arm == arm and (each := value(p))]
            x, y = [place for place, _ in found], [each[0] for _, each in found]
            color, marker = PALETTE[index % len(PALETTE)], _MARKERS[index // len(PALETTE) % len(_MARKERS)]
            axes.plot(x, y, marker=marker, color=color, lw=1.4, ms=5, label=arm)
            for place, (_, limits) in found:
                if limits:
                    axes.plot([place, place], [limits.low, limits.high], color=color, lw=1.2, marker="_", ms=6)
        ticks = [f"{bench.started[:10]}\n{bench.commit[:9]}".strip() for bench in history.benches]
        every = max(1, len(ticks) // 12 + 1) if len(ticks) > 12 else 1
        axes.set_xticks(range(0, len(ticks), every), ticks[::every], fontsize=8)
        axes.set_xlim(-0.5, len(ticks) - 0.5)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(unit)

    return paint
