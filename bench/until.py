"""The turns that are done: measured, or not needed because an arm has learned enough before. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfdist.bench.folder import BenchFile
from tfdist.bench.plan import PlannedRun, start_of
from tfdist.bench.suites.suite import Suite
from tfdist.models.record import Record, RecordStatus


def accuracy_of(observed: Mapping[str, Mapping[str, Any]]) -> float | None:
    """The accuracy on held-out examples after a turn, 0..1; None: not evaluated.

    Of trainings without exchange, the lowest.
    """
    results = [task["held_out"]["accuracy"] for task in observed.values() if "held_out" in task]
    return min(results, default=None)


def has_learned(observed: Mapping[str, Mapping[str, Any]], suite: Suite) -> bool:
    """Whether an arm needs no more turns in this incarnation."""
    accuracy = accuracy_of(observed)
    enough = suite.until_accuracy
    return accuracy is not None and enough is not None and accuracy >= enough


def completed(records: Sequence[Record]) -> set[PlannedRun]:
    """The runs that were measured."""
    return {PlannedRun(record.round, record.arm) for record in records if record.status == RecordStatus.OK}


def unneeded(bench: BenchFile, records: Sequence[Record]) -> set[PlannedRun]:
    """The runs after which an arm had learned enough, in the same incarnation."""
    learned: dict[tuple[str, int], int] = {}
    for record in records:
        if has_learned(record.observed, bench.suite):
            key = (record.arm, start_of(record.round, bench.ends))
            learned[key] = min(record.round, learned.get(key, record.round))
    never = bench.suite.rounds
    return {run for run in bench.plan if run.round > learned.get((run.arm, start_of(run.round, bench.ends)), never)}


def done_runs(bench: BenchFile, records: Sequence[Record]) -> set[PlannedRun]:
    """The runs that need not be measured.

    An arm that learns starts from the beginning in each incarnation: all rounds of an interrupted one are left.
    """
    done = completed(records) | unneeded(bench, records)
    learning = {record.arm for record in records if accuracy_of(record.observed) is not None}
    left = [run for run in bench.plan if run.arm in learning and run not in done]
    interrupted = {(run.arm, start_of(run.round, bench.ends)) for run in left}
    return {run for run in done if (run.arm, start_of(run.round, bench.ends)) not in interrupted}
