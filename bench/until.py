"""The turns that are not needed, because an arm has learned enough before. Pure."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from tfdist.bench.plan import PlannedRun
from tfdist.bench.suites.suite import Suite
from tfdist.models.record import Record


def accuracy_of(observed: Mapping[str, Mapping[str, Any]]) -> float | None:
    """The accuracy on held-out examples after a turn, 0..1; None: not evaluated.

    Of trainings without exchange, the lowest.
    """
    results = [task["held_out"]["accuracy"] for task in observed.values() if "held_out" in task]
    return min(results, default=None)


def has_learned(observed: Mapping[str, Mapping[str, Any]], suite: Suite) -> bool:
    """Whether an arm needs no more turns in this incarnation."""
    accuracy, enough = accuracy_of(observed), suite.until_accuracy
    return accuracy is not None and enough is not None and accuracy >= enough


def start_of(round: int, suite: Suite) -> int:
    """The incarnation that measures a round, counted from 0, as `plan.incarnations` spreads them."""
    ends = [ceil(suite.rounds * index / suite.incarnations) for index in range(1, suite.incarnations + 1)]
    return bisect_left(ends, round)


def unneeded(plan: Sequence[PlannedRun], suite: Suite, records: Sequence[Record]) -> set[PlannedRun]:
    """The runs after which an arm had learned enough, in the same incarnation."""
    learned: dict[tuple[str, int], int] = {}
    for record in records:
        if has_learned(record.observed, suite):
            key = (record.arm, start_of(record.round, suite))
            learned[key] = min(record.round, learned.get(key, record.round))
    return {run for run in plan if run.round > learned.get((run.arm, start_of(run.round, suite)), suite.rounds)}
