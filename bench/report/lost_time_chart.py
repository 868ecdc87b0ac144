"""The lost time of arms as stacked bars: the ideal step, then the parts of the loss."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from tfdist.bench.lost_time import LostTime, Part
from tfdist.bench.mean import Mean
from tfdist.bench.report.arm_chart import arm_chart, described, draw_interval, write
from tfdist.bench.report.colors import GRID, INK, MUTED, PALETTE, PAPER
from tfdist.bench.report.section import Chart
from tfdist.bench.report.summary import ArmRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Lost = Mapping[str, LostTime]
"""Lost time by ArmRow.label."""
IDEAL = "ideal: one device without a strategy"
_COLORS: Mapping[Part, tuple[str, str]] = {
    Part.SHARED: (PALETTE[0], ""),
    Part.STRATEGY: (PALETTE[1], ""),
    Part.EXCHANGE: (PALETTE[2], ""),
    Part.WAITING: (PALETTE[3], ""),
    Part.NOT_SEPARATED: (PALETTE[2], "//"),
    Part.INPUT: (PALETTE[4], ""),
    Part.UNEXPLAINED: (PALETTE[5], ".."),
}
"""Color and hatch."""
_LEAST_SHARE = 0.002
"""Share of a step below which parts are not drawn."""


def lost_time_chart(rows: Sequence[ArmRow], lost: Lost) -> Chart:
    """A bar for each row."""

    def text(row: ArmRow) -> str:
        return parts_text(lost[row.label])

    return arm_chart(
        "lost_time",
        "Where the time of a step goes",
        f"Milliseconds per step, ideal and lost: {described(rows, text)}.",
        rows,
        lambda axes, shown: _paint(axes, [lost[row.label] for row in shown]),
        values_of(lost),
    )


def parts_text(lost: LostTime) -> str:
    """`ideal 98, exchange 40, ...`."""
    parts = [f"{part} {mean.value:.1f}" for part, mean in lost.parts.items()]
    return ", ".join([f"ideal {lost.ideal.value:.1f}", *parts])


def values_of(lost: Lost) -> pd.DataFrame:
    """A row for each arm and part."""
    table: pd.DataFrame = pd.DataFrame(
        [
            (arm, name, mean.value, mean.low, mean.high)
            for arm, of_arm in lost.items()
            for name, mean in _figures(of_arm).items()
        ],
        columns=["arm", "part", "ms_per_step", "low", "high"],
    )
    return table


def _figures(lost: LostTime) -> Mapping[str, Mean]:
    parts = {str(part): mean for part, mean in lost.parts.items()}
    return {"step": lost.step, "ideal": lost.ideal, "loss": lost.loss, **parts}


def _paint(axes: "Axes", every: Sequence[LostTime]) -> None:
    """Parts that are gains, below 0, take a piece off the end of the bar."""
    for index, lost in enumerate(every):
        axes.barh(index, lost.ideal.value, height=0.62, color=GRID, label=IDEAL)
        left = lost.ideal.value
        for part, mean in lost.parts.items():
            if mean.value > _LEAST_SHARE * lost.step.value:
                color, hatch = _COLORS[part]
                axes.barh(
                    index,
                    mean.value,
                    left=left,
                    height=0.62,
                    color=color,
                    hatch=hatch,
                    edgecolor=PAPER,
                    lw=0.6,
                    label=part,
                )
                left += mean.value
        gain = left - lost.step.value
        if gain > _LEAST_SHARE * lost.step.value:
            words = "gain: parts below 0"
            axes.barh(
                index,
                gain,
                left=left - gain,
                height=0.62,
                color=PAPER,
                alpha=0.8,
                hatch="xx",
                edgecolor=MUTED,
                lw=0.6,
                label=words,
            )
        high = lost.step.value
        if lost.step.low is not None and lost.step.high is not None:
            high = lost.step.high
            draw_interval(axes, lost.step.low, high, index, ms=6)
        axes.plot([lost.step.value] * 2, [index - 0.38, index + 0.38], color=INK, lw=1.4, label="measured step")
        write(axes, f"{lost.step.value:.0f} ms, {_share(lost):.0%} lost", max(left, high), index)
    axes.set_xlabel("milliseconds per step")
    axes.margins(x=0.16)
    axes.set_xlim(left=0)


def _share(lost: LostTime) -> float:
    return lost.loss.value / lost.step.value
