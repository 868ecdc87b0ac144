"""The answer of a report to "which one?", as a colleague would give it: what to use, and how sure that is. Pure."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tfdist.bench.report.arm_names import alternatives, phrases, strategies_or_phrases
from tfdist.bench.report.arm_records import arm_of, same_work
from tfdist.bench.report.baseline import VersusBaseline
from tfdist.bench.report.certainty import Certainty, certainty_of
from tfdist.bench.report.format import between, span, three_digits, up_to
from tfdist.bench.report.section import KeyFigure
from tfdist.bench.report.sections.scaling import curve_of
from tfdist.bench.report.summary import PARTIAL, ArmRow, at_most_slower, fastest, others_over, rank
from tfdist.bench.same_arms import SamePair
from tfdist.bench.statistics import FEWEST_ROUNDS, ArmVerdict, Comparison, Interval, interval_of
from tfdist.launch.text import counted, listed, shortened
from tfdist.models.record import RecordStatus
from tfdist.strategies.options import StrategyName

_MOST_SIZES = 4
"""Numbers of devices in the sentence on a scaling curve."""


@dataclass(frozen=True)
class Verdict:
    """The answer of one folder."""

    advice: str
    """Sentences, the first of which says which arm to use, or why that is not known."""
    certainty: str
    """Sentences: how sure that is; empty: nothing was compared."""
    within: float
    """Smaller differences, as a share, may be noise; infinite: unknown."""
    figures: tuple[KeyFigure, ...] = ()
    """The figures of the first sentence."""


def verdict_of(rows: Sequence[ArmRow], pairs: Sequence[SamePair] = (), more: Callable[[], str] = str) -> Verdict:
    """The answer of the arms of one folder.

    Args:
        rows: all arms, those without figures included.
        pairs: equal arms, of any folder.
        more: returns a sentence on how to measure enough, for a bench that has measured too little.
    """
    measured = [row for row in rows if row.measured]
    if not measured:
        return Verdict(f"Nothing was measured: {_tally(rows) or 'no readable record'}.", "", math.inf)
    certainty = certainty_of(measured, pairs, more)
    without = [row for row in rows if not row.measured]
    rest = [f"Not measured: {_tally(without)}."] if without else []
    if certainty.obstacle:
        return _verdict(certainty, [certainty.obstacle, *rest])
    if versions := [row for row in rows if row.has_base]:
        return _verdict(certainty, [*versions_text(versions), *rest], _version_figures(versions))
    rivals, unranked = rank(measured)
    rest = [*_left_out(unranked, rows), *rest]
    if not rivals:
        return _verdict(certainty, ["No arm can be recommended.", *rest])
    choice = _Choice(rivals, rows)
    return _verdict(certainty, [*choice.sentences(), *rest], tuple(choice.figures(certainty)))


def _verdict(certainty: Certainty, sentences: Sequence[str], figures: Sequence[KeyFigure] = ()) -> Verdict:
    return Verdict(" ".join(sentences), certainty.text, certainty.within, tuple(figures))


class _Choice:
    """The fastest of some arms, and those that are as fast as far as is known."""

    def __init__(self, rivals: Sequence[ArmRow], rows: Sequence[ArmRow]) -> None:
        """`rivals`: as `rank` returns them, at least one; `rows`: all arms of their folder."""
        self.rivals = rivals
        self.best = best = fastest(rivals)
        """The one with the most images/s."""
        self.others = others_over(best, rivals)
        self.ties = [(row, of) for row, of in self.others if of.interval and not _is_slower(row, of)]
        """The arms that are not measurably slower; none that cannot be compared."""
        self.group = sorted((best, *(row for row, _ in self.ties)), key=lambda row: -row.rate)
        self.able = [row for row in rows if row.status != RecordStatus.REFUSED]
        self.names = alternatives(phrases(self.group, self.able), "or")
        self.curve = curve_of(best, [row for row in rows if row.measured])
        self.baseline = _usable_baseline(best, self.group)
        self.sizes = sorted({row.devices or 0 for row in self.group})
        self.devices = " or ".join(
            filter(None, (", ".join(map(str, self.sizes[:-1])), counted(self.sizes[-1], "device")))
        )

    def sentences(self) -> Iterator[str]:
        """What to use, how much faster it is, and what is slower."""
        if one := self._enough():
            slower = one.comparison.verdict is ArmVerdict.SLOWER
            which = f"{self.best.arm}, the fastest arm on {counted(self.best.devices or 0, 'device')}"
            than = "slower" if slower else "not measurably faster"
            figures = f"{three_digits(one.comparison.ratio)} times, {three_digits(self.best.rate)} images/s"
            yield f"Use {_baseline_name(self.best)}: {which}, is {than}: {figures}."
            return
        yield self._use()
        if self.curve and not self.ties:
            yield self._growth()
        if len({same_work(row) for row in self.group}) > 1:
            yield "No difference between them could be measured."
            if (most := up_to(at_most_slower(of for _, of in self.ties))) != up_to(0):
                yield f"The slowest of them may be up to {most} slower than the fastest."
        if len(self.sizes) > 1:
            fewest = min(self.group, key=lambda row: (row.devices or 0, -row.rate))
            yield f"{fewest.arm} needs the fewest devices, {fewest.devices}."
        as_large = [row for row in self.able if row.devices in (None, self.best.devices)]
        little = f"Slower, perhaps by less than {up_to(self.best.equal)}"
        for text, rows in zip((little, "Slower for sure"), self._slower(), strict=True):
            if rows:
                yield f"{text}: {alternatives(strategies_or_phrases(rows, as_large), 'and')}."
        if apart := [row.arm for row, of in self.others if not of.interval and not row.dropped]:
            yield f"Not compared with {self.best.arm}, for too few rounds in common: {shortened(apart)}."

    def _enough(self) -> VersusBaseline | None:
        """The baseline if it has fewer devices, and more of them are not measurably faster."""
        one = self.baseline
        return one if one and one.devices > 1 and one.comparison.verdict is not ArmVerdict.FASTER else None

    def _use(self) -> str:
        rates = f"{span(row.rate for row in self.group)} images/s"
        if len(self.rivals) == 1 and not self.baseline:
            return f"{self.best.arm}: {rates} on {self.devices}."
        where = f" on {self.devices}" if len({row.devices for row in self.rivals}) > 1 else ""
        times = f"{_times(self.group)} times {_baseline_name(self.best)}, " if self.baseline else ""
        return f"Use {self.names}: {times}{rates}{where}."

    def _growth(self) -> str:
        shown = self.curve[-_MOST_SIZES:]
        sizes, rates = (str(row.devices) for row in shown), (three_digits(row.rate) for row in shown)
        return f"On {listed(sizes)} devices: {listed(rates)} images/s."

    def _slower(self) -> tuple[list[ArmRow], list[ArmRow]]:
        """The arms on as many devices that are slower, by perhaps less than what counts as equal, and by more.

        Without those that equal one of the group (A/A).
        """
        little: list[ArmRow] = []
        more: list[ArmRow] = []
        equal = [same_work(row) for row in self.group]
        for row, of in self.others:
            if _is_slower(row, of) and row.devices == self.best.devices and same_work(row) not in equal:
                perhaps_little = of.interval is not None and of.interval.high > 1 - self.best.equal
                (little if perhaps_little else more).append(row)
        return little, more

    def figures(self, certainty: Certainty) -> Iterator[KeyFigure]:
        """Throughput, speed-up, efficiency and certainty of what the first sentence names; at most these four."""
        best, one, independent = self.best, self.baseline, self.best.independent
        alone = len(self.group) == 1 or self._enough() is not None
        group, names = ([best], best.arm) if alone else (self.group, self.names)
        rates = f"{span(row.rate for row in group)} images/s"
        yield KeyFigure(rates, f"{names}, on {self.devices}{_limits(best.spread) if alone else ''}")
        if one:
            yield KeyFigure(
                f"{_times(group)} times", f"{_baseline_name(best)}{_limits(one.comparison.interval) if alone else ''}"
            )
        ceiling = ""
        if independent and independent.label != best.label:
            ceiling = f"of {arm_of(best.folder, independent.label)}, which exchanges nothing"
        if one and one.devices != 1:
            shares = [round(100 * row.one_device.efficiency) for row in group if row.one_device]
            text = f"efficiency against {_baseline_name(best)}"
            text += f"; {100 * independent.efficiency:.0f} % {ceiling}" if independent and ceiling else ""
            yield KeyFigure(f"{' to '.join(map(str, sorted({min(shares), max(shares)})))} %", text)
        elif independent and ceiling:
            yield KeyFigure(f"{100 * independent.efficiency:.0f} %", ceiling)
        if certainty.reason:
            yield KeyFigure(up_to(certainty.within), f"how sure this is: {certainty.reason}")


def _is_slower(row: ArmRow, than_best: Comparison) -> bool:
    """Whether it is slower than the best for sure, by all turns or by those of a look between the starts."""
    return row.slower or (than_best.interval is not None and than_best.verdict is ArmVerdict.SLOWER)


def _times(rows: Sequence[ArmRow]) -> str:
    return span(row.one_device.comparison.ratio for row in rows if row.one_device)


def _limits(interval: Interval | None) -> str:
    """` (1.39 to 1.60)`; empty without an interval, or if three digits do not show it."""
    text = span((interval.low, interval.high)) if interval else ""
    return f" ({text})" if " to " in text else ""


def _usable_baseline(best: ArmRow, group: Sequence[ArmRow]) -> VersusBaseline | None:
    """The baseline of `best` if a ratio to it answers something: it is none of the group, and does the same work."""
    one = best.one_device
    if one is None or one.comparison.interval is None or any(one.label == row.label for row in group):
        return None
    other_work = one.differences and best.baseline is None and best.strategy is not StrategyName.ONE_DEVICE
    return None if other_work else one


def _baseline_name(row: ArmRow) -> str:
    """`one device`, or the name of the baseline that a suite or the user has chosen."""
    assert row.one_device is not None
    name = arm_of(row.folder, row.one_device.label)
    return name if row.baseline is not None or row.strategy is StrategyName.ONE_DEVICE else "one device"


def _left_out(unranked: dict[str, str], rows: Sequence[ArmRow]) -> Iterator[str]:
    """The measured arms that do not count, by reason."""
    arms = {row.label: row.arm for row in rows}
    for reason in dict.fromkeys(unranked.values()):
        names = [arms[label] for label, why in unranked.items() if why == reason]
        yield f"{listed(names)} {'does' if len(names) == 1 else 'do'} not count: {reason}."


def _tally(rows: Sequence[ArmRow]) -> str:
    """`broken (failed), 54 arms (refused)`."""
    statuses = Counter(row.status for row in rows)
    names = {row.status: row.arm for row in rows}
    return ", ".join(
        f"{names[status] if number == 1 else counted(number, 'arm')} ({status})" for status, number in statuses.items()
    )


def versions_text(versions: Sequence[ArmRow]) -> Iterator[str]:
    """What changed from their earlier versions."""
    missing = "one of them was not measured, or did not train under its strategy"
    reasons = [missing if row.status in (RecordStatus.OK, PARTIAL) else row.reason for row in versions]
    changes = [(row.arm, row.over_base, reason) for row, reason in zip(versions, reasons, strict=True)]
    return changes_text(changes, "its base")


def changes_text(changes: Sequence[tuple[str, Comparison | None, str]], base: str) -> Iterator[str]:
    """A sentence for each arm that changed or was not compared, and one for all others.

    Args:
        changes: the name, the ratio of new over base, and the reason if there is none.
        base: what it is compared with.
    """
    same: dict[str, Comparison] = {}
    without: dict[str, list[str]] = {}
    for arm, found, reason in changes:
        interval = interval_of(found)
        if found is None or interval is None:
            why = reason if found is None else f"fewer than {FEWEST_ROUNDS} rounds"
            without.setdefault(why, []).append(arm)
        elif found.verdict is ArmVerdict.CANNOT_TELL:
            same[arm] = found
        else:
            limits = sorted(abs(1 - value) for value in (interval.low, interval.high))
            low, high = (three_digits(100 * share) for share in limits)
            size = f"{three_digits(100 * abs(1 - found.ratio))} % {found.verdict}"
            yield f"{arm} is {size} than {base}, surely between {low} and {high} %."
    if same:
        most = up_to(at_most_slower(same.values()))
        yield f"No change of {listed(same)} could be measured{f': at most {most} slower' if most != up_to(0) else ''}."
    for why, arms in without.items():
        yield f"Not compared with {base}: {listed(arms)}; {why}."


def _version_figures(versions: Sequence[ArmRow]) -> tuple[KeyFigure, ...]:
    found = [(row, row.over_base) for row in versions]
    return tuple(
        KeyFigure(f"{of.ratio:.3f} times", f"{row.arm} over its base{between(of.interval, '.3f')}")
        for row, of in found
        if of
    )
