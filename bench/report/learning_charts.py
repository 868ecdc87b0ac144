"""The curves of arms that learn."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd

from tfdist.bench.learning import Point
from tfdist.bench.report.colors import PALETTE
from tfdist.bench.report.learner import Learner
from tfdist.bench.report.section import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXES: tuple[tuple[str, str, str, Callable[[Point], float]], ...] = (
    ("accuracy", "Held-out accuracy", "held-out examples classified correctly, 0 to 1", lambda point: point.accuracy),
    ("loss", "Held-out loss", "mean cross-entropy on the held-out examples", lambda point: point.loss),
)
_OVER: tuple[tuple[str, str, Callable[[Point], float]], ...] = (
    ("examples", "examples trained", lambda point: point.examples),
    ("seconds", "seconds of training", lambda point: point.seconds),
)


def learning_charts(learners: Sequence[Learner]) -> Iterator[Chart]:
    """Accuracy and loss, each over examples and over seconds: a line for each training."""
    data = _frame(learners)
    for name, title, label, height in _AXES:
        for over, over_label, across in _OVER:
            yield Chart(
                f"{name}_over_{over}",
                f"{title} over {over}",
                f"A line for each seed of each arm: {label} over {over_label}. Last values: {_ends(learners, height)}.",
                partial(_paint, learners=learners, across=across, height=height, labels=(over_label, label)),
                data[["arm", "task", "seed", over, name]],
                inches=4.6,
            )


def _ends(learners: Sequence[Learner], height: Callable[[Point], float]) -> str:
    """`a 0.95, 0.96; b 0.93, 0.95`: where the lines of each arm end."""
    return "; ".join(
        f"{learner.row.label} {', '.join(f'{height(curve.points[-1]):.2f}' for curve in learner.curves)}"
        for learner in learners
    )


def _frame(learners: Sequence[Learner]) -> pd.DataFrame:
    frame: pd.DataFrame = pd.DataFrame(
        [
            {"arm": learner.row.label, "task": curve.task, "seed": curve.seed, **vars(point)}
            for learner in learners
            for curve in learner.curves
            for point in curve.points
        ]
    )
    return frame


def _paint(
    axes: "Axes",
    learners: Sequence[Learner],
    across: Callable[[Point], float],
    height: Callable[[Point], float],
    labels: tuple[str, str],
) -> None:
    styles = ("-", "--", ":")
    for index, learner in enumerate(learners):
        color, style = PALETTE[index % len(PALETTE)], styles[index // len(PALETTE) % len(styles)]
        for position, curve in enumerate(learner.curves):
            xs, ys = [across(point) for point in curve.points], [height(point) for point in curve.points]
            label = learner.row.label if position == 0 else None
            axes.plot(xs, ys, style, color=color, lw=1.2, alpha=0.75, label=label)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.set_xlim(left=0)
