"""The result of a bench in a few sentences. Pure."""

from collections.abc import Sequence
from itertools import groupby

from tfdist.bench.report.summary import WRONG, ArmRow, statistics_of
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict
from tfdist.launch.text import counted
from tfdist.strategies.catalog import Exchange


def headline(rows: Sequence[ArmRow]) -> tuple[str, ...]:
    """One text per folder, in order: the fastest arm, by how much, and how certain that is.

    Arms are ranked that have FEWEST_ROUNDS or more and the right losses. Trainings without exchange are a ceiling and
    those on one device a baseline: they are not ranked unless nothing else was measured.
    """
    return tuple(_of_folder(list(group), folder) for folder, group in groupby(rows, key=lambda row: row.folder))


def best_of(rows: Sequence[ArmRow]) -> ArmRow | None:
    """The fastest of the arms that are ranked, which are all of one folder; None: none can be ranked."""
    rivals = _rivals([row for row in rows if row.measured])
    return max(rivals, key=lambda row: row.images_per_s or 0.0, default=None)


def _of_folder(rows: Sequence[ArmRow], folder: str) -> str:
    prefix = f"{folder}: " if folder else ""
    measured = [row for row in rows if row.measured]
    if not measured:
        return f"{prefix}Nothing was measured: {_tally(rows)}."
    rivals = _rivals(measured)
    sentences = _ranking(rivals, measured) if rivals else [_unranked(measured, len(rows))]
    wrong = [row.label for row in measured if row.status == WRONG]
    sentences += [f"Not ranked, because of wrong losses: {', '.join(wrong)}."] if wrong else []
    rest = [row for row in rows if not row.measured]
    sentences += [f"Not measured: {_tally(rest)}."] if rest else []
    return prefix + " ".join(sentences)


def _rivals(measured: Sequence[ArmRow]) -> list[ArmRow]:
    """The arms that are compared with each other; a single one only if it is all that could be."""
    exchanging = [row for row in measured if row.exchange is not Exchange.NONE] or list(measured)
    right = [row for row in exchanging if row.status != WRONG]
    if len(exchanging) > 1:
        right = [row for row in right if row.rounds >= FEWEST_ROUNDS]
    several = [row for row in right if (row.devices or 0) > 1]
    return several or right


def _unranked(measured: Sequence[ArmRow], arms: int) -> str:
    text = f"{len(measured)} of {counted(arms, 'arm')} were measured"
    if all(row.rounds >= FEWEST_ROUNDS for row in measured):
        return f"{text}."
    return f"{text}, in too few rounds to compare them: use --rounds {FEWEST_ROUNDS} or more."


def _ranking(rivals: Sequence[ArmRow], measured: Sequence[ArmRow]) -> list[str]:
    best = max(rivals, key=lambda row: row.images_per_s or 0.0)
    figure = f"{best.images_per_s:.1f} images/s for the whole job on {counted(best.devices or 0, 'device')}."
    if len(rivals) == 1:
        return [f"{best.arm}: {figure}", *_speed_up(best), *_ceiling(best)]
    first = f"{best.arm} was the fastest of {len(rivals)} arms{_without(rivals, measured)}: {figure}"
    return [first, *_speed_up(best), _ties(best, rivals, measured), *_ceiling(best)]


def _without(rivals: Sequence[ArmRow], measured: Sequence[ArmRow]) -> str:
    """The ceilings and baselines that were not ranked."""
    ranked = {row.label for row in rivals}
    others = [row for row in measured if row.label not in ranked and row.status != WRONG]
    ceilings = [row.arm for row in others if row.exchange is Exchange.NONE]
    single = [row.arm for row in others if row.devices == 1 and row.arm not in ceilings]
    parts = [f"{', '.join(ceilings)}, without exchange"] if ceilings else []
    parts += [f"{', '.join(single)}, on one device"] if single else []
    return f" (not counted: {'; '.join(parts)})" if parts else ""


def _speed_up(best: ArmRow) -> list[str]:
    versus = best.one_device
    if versus is None or versus.label == best.label:
        return []
    comparison = versus.comparison
    interval = comparison.interval
    between = f" ({interval.low:.2f} to {interval.high:.2f})" if interval else ""
    if comparison.verdict is not ArmVerdict.CANNOT_TELL:
        verdict = f"measurably {comparison.verdict}"
    else:
        few = comparison.rounds < FEWEST_ROUNDS
        verdict = "too few rounds for a verdict" if few else "no measurable difference"
    sentence = f"That is {comparison.ratio:.2f} times {versus.label}{between}: {verdict}."
    return [sentence, f"Efficiency {versus.efficiency:.0%}."]


def _ties(best: ArmRow, rivals: Sequence[ArmRow], measured: Sequence[ArmRow]) -> str:
    others = [row for row in rivals if row is not best]
    comparisons = statistics_of(measured).compare([(best.label, row.label) for row in others])
    equal = [row.arm for row, of in zip(others, comparisons, strict=True) if of.verdict is not ArmVerdict.FASTER]
    return f"No measurable difference from {', '.join(equal)}." if equal else "Measurably faster than every other arm."


def _ceiling(best: ArmRow) -> list[str]:
    versus = best.independent
    if versus is None or versus.label == best.label:
        return []
    return [f"It reaches {versus.efficiency:.0%} of {versus.label}, the same devices without exchange."]


def _tally(rows: Sequence[ArmRow]) -> str:
    """`2 arms failed, 1 arm refused`."""
    statuses = [row.status for row in rows]
    return ", ".join(f"{counted(statuses.count(status), 'arm')} {status}" for status in dict.fromkeys(statuses))
