"""The section on learning: how many examples and seconds each arm needs for an accuracy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd
from matplotlib.axes import Axes

from tfdist.bench.learning import AccuracyReach, Curve, curves_of, reached, updates_of
from tfdist.bench.mean import OverSeeds, over_seeds, ratio_over_seeds
from tfdist.bench.report.arm_records import mark_seconds
from tfdist.bench.report.figures.colors import PALETTE
from tfdist.bench.report.format import between, ends
from tfdist.bench.report.section import Chart, Section
from tfdist.bench.report.summary import ArmRow, ReportData
from tfdist.bench.table import EMPTY, Column, Table, with_interval
from tfdist.launch.text import counted
from tfdist.strategies.catalog import Exchange


@dataclass(frozen=True)
class Learner:
    """An arm whose turns were evaluated."""

    row: ArmRow
    curves: tuple[Curve, ...]
    reached: AccuracyReach

    @property
    def examples(self) -> OverSeeds | None:
        """Examples until the accuracy; None: some seed did not reach it."""
        return over_seeds(list(self.reached.examples.values())) if self.reached.complete else None

    @property
    def seconds(self) -> OverSeeds | None:
        """Seconds until the accuracy; None: some seed did not reach it."""
        return over_seeds(list(self.reached.seconds.values())) if self.reached.complete else None


_HEIGHT = {
    "accuracy": "held-out examples classified correctly, 0 to 1",
    "loss": "mean cross-entropy on the held-out examples",
}
_OVER = {"examples": "examples trained", "seconds": "seconds of training"}
"""Fields of `Point` -> label of the axis."""


def learning_charts(learners: Sequence[Learner]) -> Iterator[Chart]:
    """Accuracy and loss, each over examples and over seconds: a line for each training."""
    data = pd.DataFrame(
        [
            {"arm": learner.row.label, "task": curve.task, "seed": curve.seed, **vars(point)}
            for learner in learners
            for curve in learner.curves
            for point in curve.points
        ]
    )
    for name, label in _HEIGHT.items():
        ends = "; ".join(  # `a 0.95, 0.96; b 0.93, 0.95`
            f"{learner.row.label} {', '.join(f'{vars(curve.points[-1])[name]:.2f}' for curve in learner.curves)}"
            for learner in learners
        )
        for over, over_label in _OVER.items():
            yield Chart(
                f"{name}_over_{over}",
                f"Held-out {name} over {over}",
                f"A line for each seed of each arm: {label} over {over_label}. Last values: {ends}.",
                partial(_paint, learners=learners, over=over, name=name),
                data[["arm", "task", "seed", over, name]],
                inches=4.6,
            )


def _paint(axes: Axes, learners: Sequence[Learner], over: str, name: str) -> None:
    styles = ("-", "--", ":")
    for index, learner in enumerate(learners):
        color, style = PALETTE[index % len(PALETTE)], styles[index // len(PALETTE) % len(styles)]
        for position, curve in enumerate(learner.curves):
            xs, ys = ([vars(point)[field] for point in curve.points] for field in (over, name))
            label = learner.row.label if position == 0 else None
            axes.plot(xs, ys, style, color=color, lw=1.2, alpha=0.75, label=label)
    axes.set_xlabel(_OVER[over])
    axes.set_ylabel(_HEIGHT[name])
    axes.set_xlim(left=0)


ACCURACY = 0.95
"""Accuracy by which arms are compared, unless a suite trains until another one."""


def convergence_section(measured: ReportData) -> Section | None:
    """None without evaluated turns."""
    # the lowest that a suite trains until: arms that stop there never reach a higher one
    suites = [folder.bench.suite for folder in measured.folders if folder.bench]
    accuracy = min((suite.until_accuracy for suite in suites if suite.until_accuracy is not None), default=ACCURACY)
    learners = [
        Learner(row, curves, reached(curves, accuracy)) for row in measured.rows if (curves := curves_of(row.measured))
    ]
    if not learners:
        return None
    data = pd.DataFrame([_values(learner) for learner in learners]).convert_dtypes()
    seeds, goal = max(learner.reached.seeds for learner in learners), accuracy_text(accuracy)
    title = f"Examples and seconds to {goal} of the held-out examples"
    return Section(
        key="convergence",
        title="Learning",
        answer=(*_fastest(learners, goal), *_claim(learners, goal)),
        charts=tuple(learning_charts(learners)),
        tables=(Table("convergence", title, data, _columns(goal)),),
        notes=(
            f"Mean and 95 % interval are those of the logarithms over {counted(seeds, 'seed')}: initial weights "
            "and order of the data. Ratios compare runs with the same seed.",
            "Examples are those of all workers together; of trainings without exchange, those of one model. "
            "Seconds are examples over images/s, turn by turn: starts and evaluations do not count. An accuracy "
            "is reached between two evaluations by linear interpolation.",
            "All arms have the same learning rate and the same batch per device, so a synchronous step averages "
            "the gradients of more examples than an asynchronous update.",
            "The staleness of an update is the number of updates that others applied between its worker's read of"
            " the variables and its own.",
        ),
    )


def _fastest(learners: Sequence[Learner], goal: str) -> Iterator[str]:
    """Which arm reached the accuracy first, which ones as early, and which ones not at all. `goal`: `95%`."""
    ranked = [(learner, figure) for learner in learners if _ranked(learner.row) and (figure := learner.seconds)]
    if ranked:
        best, figure = min(ranked, key=lambda entry: entry[1].value)
        text = f"{best.row.label} was the first to classify {goal} of the held-out examples correctly"
        equal = []
        for each in (learner for learner, _ in ranked if learner is not best):
            ratio = ratio_over_seeds(each.reached.seconds, best.reached.seconds)
            if ratio is None or ratio.interval is None or ratio.interval.low <= 1.0:
                equal.append(each.row.label)
        ties = f" No measurable difference from {', '.join(equal)}." if equal else ""
        limits = f" ({_digits(figure.interval.low)} to {_digits(figure.interval.high)})" if figure.interval else ""
        after = f"after {_digits(figure.value)} s{limits} of training"
        yield mark_seconds(f"{text}, {after}.", [learner.row for learner, _ in ranked]) + ties
    if never := [learner.row.label for learner in learners if not learner.reached.complete]:
        advice = "measure with more --rounds for longer trainings"
        yield f"These arms did not reach {goal} with every seed: {', '.join(never)}; {advice}."


def _ranked(row: ArmRow) -> bool:
    """Trainings without exchange on several devices make several models."""
    return row.valid and (row.exchange is not Exchange.NONE or row.devices == 1)


def accuracy_text(accuracy: float) -> str:
    """`99.5%`."""
    return f"{100 * accuracy:.4g}%"


def _claim(learners: Sequence[Learner], goal: str) -> Iterator[str]:
    """The claim of textbooks, from each asynchronous arm and the first synchronous one on as many devices."""
    measured, intervals = [], []
    for ours in (learner for learner in learners if learner.row.exchange is Exchange.ASYNC):
        theirs = next((each for each in learners if _is_counterpart(each.row, ours.row)), None)
        ratio = ratio_over_seeds(theirs.reached.examples, ours.reached.examples) if theirs else None
        if theirs and ratio and theirs.reached.complete and ours.reached.complete:
            times = f"{ratio.value:.2f} times{between(ratio.interval, '.2f')}"
            measured.append(f"{theirs.row.label} needed {times} the examples of {ours.row.label}")
            intervals.append(ratio.interval)
    if measured:
        text = f"Synchronous training needs fewer examples to {goal} than asynchronous training"
        outcome = "holds" if all(each and each.high < 1 for each in intervals) else "cannot tell"
        if any(each and each.low > 1 for each in intervals):
            outcome = "does not hold"
        yield f'"{text}": {outcome}. {"; ".join(measured)}.'


def _is_counterpart(row: ArmRow, of: ArmRow) -> bool:
    same = row.folder == of.folder and row.devices == of.devices and row.batch_per_replica == of.batch_per_replica
    return same and row.exchange is Exchange.SYNC and (row.devices or 0) > 1


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _columns(goal: str) -> tuple[Column, ...]:
    return (
        Column("arm", ("arm",)),
        Column("batch of an update", ("batch_of_update",)),
        Column(f"seeds that reached {goal}", ("seeds_reached", "seeds"), "{} of {}"),
        Column("examples (95 % interval)", ("examples", "examples_low", "examples_high"), with_interval(_digits)),
        Column("seconds (95 % interval)", ("seconds", "seconds_low", "seconds_high"), with_interval(_digits)),
        Column("images/s", ("images_per_s",), "{:.0f}"),
        Column("staleness: mean, p95, max", ("staleness_mean", "staleness_p95", "staleness_max"), "{:.2f}, {}, {}"),
        Column("share of each worker", ("worker_shares",), _shares_text),
    )


def _shares_text(shares: str | None) -> str:
    return ", ".join(f"{float(share):.0%}" for share in shares.split("/")) if shares else EMPTY


def _values(learner: Learner) -> dict[str, object]:
    row, updates = learner.row, updates_of(learner.row.measured)
    examples, seconds = learner.examples, learner.seconds
    staleness = updates.staleness if updates else None
    return {
        "arm": row.label,
        # examples whose gradients are averaged for one update of the variables
        "batch_of_update": row.batch_global if row.exchange is Exchange.SYNC else row.batch_per_replica,
        "seeds": learner.reached.seeds,
        "seeds_reached": len(learner.reached.examples),
        "examples": examples.value if examples else None,
        **ends("examples", examples.interval if examples else None),
        "seconds": seconds.value if seconds else None,
        **ends("seconds", seconds.interval if seconds else None),
        "images_per_s": row.images_per_s,
        "staleness_mean": staleness.mean if staleness else None,
        "staleness_p95": staleness.p95 if staleness else None,
        "staleness_max": staleness.largest if staleness else None,
        "worker_shares": "/".join(f"{share:.4f}" for share in updates.shares) if updates else None,
    }
