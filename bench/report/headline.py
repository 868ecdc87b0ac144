"""What a bench found, in a sentence or three. Pure."""

from collections.abc import Sequence
from itertools import groupby

from tfdist.bench.report.summary import ArmRow, rounds_of
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict, compare
from tfdist.strategies.catalog import Exchange


def headline(rows: Sequence[ArmRow]) -> tuple[str, ...]:
    """One text for each folder, in order: what was fastest, by how much, and how sure that is.

    `independent` is the ceiling and no rival, unless nothing else was measured.
    """
    return tuple(_of_one(list(group), folder) for folder, group in groupby(rows, key=lambda row: row.folder))


def _of_one(rows: Sequence[ArmRow], folder: str) -> str:
    prefix = f"{folder}: " if folder else ""
    measured = [row for row in rows if row.measured]
    if not measured:
        return f"{prefix}Nothing was measured: {_tally(rows)}."
    training = [row for row in measured if row.exchange is not Exchange.NONE] or measured
    best = max(training, key=lambda row: row.images_per_s or 0.0)
    sentences = [_fastest(best, len(training)), *_against_one_device(best), *_ties(best, training), *_ceiling(best)]
    rest = [row for row in rows if not row.measured]
    sentences += [f"Not measured: {_tally(rest)}."] if rest else []
    return prefix + " ".join(sentences)


def _fastest(best: ArmRow, arms: int) -> str:
    devices = "one device" if best.devices == 1 else f"{best.devices} devices"
    figure = f"{best.images_per_s:.1f} images/s for the whole job on {devices}"
    return f"{best.arm} was the fastest of {arms} arms: {figure}." if arms > 1 else f"{best.arm}: {figure}."


def _against_one_device(best: ArmRow) -> list[str]:
    against = best.one_device
    if against is None or against.label == best.label:
        return []
    ratio = f"{against.comparison.ratio:.2f} times {against.label}"
    interval = against.comparison.interval
    between = f" ({interval.low:.2f} to {interval.high:.2f} over rounds)" if interval else ""
    sure = {
        ArmVerdict.FASTER: "round by round it is faster",
        ArmVerdict.SLOWER: "round by round it is slower",
        ArmVerdict.CANNOT_TELL: "these rounds cannot tell whether that is a difference",
    }[against.comparison.verdict]
    return [f"That is {ratio}{between}; {sure}. Efficiency {against.efficiency:.0%}."]


def _ties(best: ArmRow, training: Sequence[ArmRow]) -> list[str]:
    """The arms that cannot be told apart from the fastest."""
    if len(training) < 2:
        return []
    if best.rounds < FEWEST_ROUNDS:
        rounds = "One round" if best.rounds == 1 else f"{best.rounds} rounds"
        return [f"{rounds} cannot tell arms apart: take the order as a hint."]
    own = rounds_of(best.records)
    others = [row for row in training if row is not best]
    equal = [row.arm for row in others if compare(own, rounds_of(row.records)).verdict is not ArmVerdict.FASTER]
    return (
        [f"Not to be told apart from it: {', '.join(equal)}."]
        if equal
        else ["It beats every other arm round by round."]
    )


def _ceiling(best: ArmRow) -> list[str]:
    against = best.independent
    if against is None or against.label == best.label:
        return []
    return [f"It reaches {against.efficiency:.0%} of {against.label}, the same devices without any exchange."]


def _tally(rows: Sequence[ArmRow]) -> str:
    """`2 arms failed, 1 arm refused`."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    return ", ".join(f"{count} arm{'s' if count > 1 else ''} {status}" for status, count in counts.items())
