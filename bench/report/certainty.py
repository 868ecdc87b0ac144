"""How sure the comparisons of a report are: the noise of equal arms (A/A), of the ratios, and of the turns. Pure."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tfdist.bench.disturbance import LIMIT
from tfdist.bench.noise import FEWEST_STARTS
from tfdist.bench.report.arm_records import arm_of, disturbances_of, same_work
from tfdist.bench.report.format import up_to
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.same_arms import SamePair
from tfdist.bench.statistics import FEWEST_ROUNDS, LEAST_OF_FEW_STARTS, Interval, OddStart, Statistics
from tfdist.launch.text import counted
from tfdist.strategies.catalog import Exchange

_MANY_DISTURBED, _MOST_DISTURBED = 0.1, 0.5
"""Shares of disturbed turns above which a report says so, or compares nothing."""
_WIDEST = 0.5
"""Nothing is compared if a ratio is known less well than to within this share."""


def same_pairs(rows: Sequence[ArmRow]) -> tuple[SamePair, ...]:
    """Each later arm with the first one of the same configuration and folder."""
    first: dict[tuple[object, ...], str] = {}
    pairs = []
    for row in rows:
        if row.measured and row.valid:
            label = first.setdefault((row.folder, same_work(row)), row.label)
            pairs += [(row.label, label)] if label != row.label else []
    # each with an error rate of its own: they are no verdicts
    statistics = Statistics(rows[0].statistics.rounds, rows[0].statistics.floor)
    return tuple(SamePair(*pair, statistics.compare([pair])[0], _own_error(statistics, *pair)) for pair in pairs)


def _own_error(statistics: Statistics, arm: str, other: str) -> float | None:
    variance = statistics.ratio(arm, other).variance
    few = statistics.least_of(arm, other) > 0
    return None if variance is None or few else math.sqrt(variance.value)


def least_differences(rows: Sequence[ArmRow], pairs: Sequence[SamePair]) -> dict[str, float]:
    """Label -> by how much equal arms of its folder may differ, as a share; empty: no arm was measured twice."""
    folder_of = {row.label: row.folder for row in rows}
    most: dict[str, float] = {}
    for pair in pairs:
        if limits := pair.comparison.interval:
            folder = folder_of[pair.arm]
            most[folder] = max(most.get(folder, 0.0), largest_difference(limits))
    return {label: most[folder] for label, folder in folder_of.items() if folder in most}


def largest_difference(limits: Interval) -> float:
    """The largest difference that an interval of a ratio holds, as a share."""
    return max(limits.high, 1 / limits.low) - 1


def smallest_difference(limits: Interval) -> float:
    """The smallest difference that it holds, in either direction."""
    return max(limits.low, 1 / limits.high, 1.0) - 1


@dataclass(frozen=True)
class Certainty:
    """How sure the comparisons within a folder are."""

    within: float
    """Smaller differences, as a share, may be noise; infinite: unknown."""
    reason: str = ""
    """Why no smaller ones; empty: unknown."""
    remarks: tuple[str, ...] = ()
    """Sentences about what makes it less sure."""
    obstacle: str = ""
    """Why nothing may be compared, and what to do; empty: it may."""

    @property
    def text(self) -> str:
        """`Sure to within 6 %: two equal arms (A/A) differed by up to 6 %.`, and the remarks."""
        sure = (f"Sure to within {up_to(self.within)}: {self.reason}.",) if self.reason else ()
        return " ".join((*sure, *self.remarks))


def certainty_of(rows: Sequence[ArmRow], pairs: Sequence[SamePair], more: Callable[[], str]) -> Certainty:
    """How sure the comparisons of these measured arms of one folder are.

    Args:
        rows: at least one.
        pairs: equal arms, of any folder.
        more: returns a sentence on how to measure enough, for a bench that has measured too little.
    """
    if obstacle := _obstacle(rows, pairs, more):
        return Certainty(math.inf, obstacle=obstacle)
    if len(rows) < 2:
        return Certainty(math.inf)
    noises = [noise for noise in _noises(rows, pairs) if math.isfinite(noise[0])]
    few = _few_starts(rows)
    noises += [(LEAST_OF_FEW_STARTS, few)] if few else []
    within, reason = max(noises, default=(math.inf, ""))
    if noises and within > _WIDEST:
        wide = f"Too noisy to compare: a ratio is known only to within {up_to(within)}"
        return Certainty(
            math.inf, obstacle=f"{wide}. End other programs and repeat the bench, with more --incarnations."
        )
    remarks = [f"{few.capitalize()}."] if few and reason != few else []
    return Certainty(within, reason, (*remarks, *_remarks(rows)))


def _obstacle(rows: Sequence[ArmRow], pairs: Sequence[SamePair], more: Callable[[], str]) -> str:
    versions = any(row.has_base for row in rows)  # one is as right as the other
    if wrong := next((row for row in rows if row.contradiction and not versions), None):
        check = (
            "Check that the program trains under its strategy and counts the examples of all replicas; until then no"
        )
        check = check if "command" in wrong.spec else "Until that is explained, no"
        return f"Something is wrong with {wrong.arm}: {wrong.contradiction}. {check} arm can be recommended."
    if len(rows) < 2:
        return ""
    several = [row for row in rows if row.exchange is not Exchange.NONE and (row.devices or 0) > 1]
    rounds = {row.rounds for row in several or rows}
    if max(rounds) < FEWEST_ROUNDS:
        each = f"{'at most ' if len(rounds) > 1 else ''}{counted(max(rounds), 'round')} of each arm"
        return f"Too little was measured to compare: {each}. {more()}".strip()
    if (share := _disturbed(rows)) > _MOST_DISTURBED:
        noisy = f"Too noisy to compare: {100 * share:.0f} % of the turns were disturbed"
        return f"{noisy}. End other programs and repeat the bench."
    for pair, limits in _within(rows, pairs):
        if (least := smallest_difference(limits)) > LIMIT:
            one, other = (arm_of(rows[0].folder, label) for label in (pair.other, pair.arm))
            equal = f"{one} and {other}, which are equal (A/A), differed by at least {100 * least:.0f} %"
            return (
                f"Too noisy to compare: {equal}. End other programs, or let the machine settle, and repeat the bench."
            )
    return ""


def _within(rows: Sequence[ArmRow], pairs: Sequence[SamePair]) -> Iterator[tuple[SamePair, Interval]]:
    """The pairs of equal arms among these, each with its interval."""
    labels = {row.label for row in rows}
    for pair in pairs:
        if pair.arm in labels and pair.comparison.interval:
            yield pair, pair.comparison.interval


def _noises(rows: Sequence[ArmRow], pairs: Sequence[SamePair]) -> Iterator[tuple[float, str]]:
    """Differences, as shares, that the noise alone may make, each with the reason."""
    equal = [largest_difference(limits) for _, limits in _within(rows, pairs)]
    for most in equal:
        yield most, f"two equal arms (A/A) differed by up to {up_to(most)}"
    versions = [(row.label, row.one_device.label) for row in rows if row.has_base and row.one_device]
    enough = [row for row in rows if row.rounds >= FEWEST_ROUNDS and not row.dropped]
    compared = versions or [(row.label, enough[0].label) for row in enough[1:]]
    twice = "" if equal else "; no arm was measured twice (A/A)"
    for pair in compared:
        yield rows[0].statistics.ratio(*pair).half_width(), f"that is how well the least certain ratio is known{twice}"


def _few_starts(rows: Sequence[ArmRow]) -> str:
    """`only 2 starts of each arm`; empty: enough."""
    rounds = max(row.rounds for row in rows)
    starts = min(len(row.starts) for row in rows if row.rounds == rounds)  # a baseline starts in each group
    return f"only {counted(starts, 'start')} of each arm" if starts < FEWEST_STARTS else ""


def _disturbed(rows: Sequence[ArmRow]) -> float:
    turns = [record for row in rows for record in row.measured]
    return sum(bool(disturbances_of(record)) for record in turns) / len(turns)


def _remarks(rows: Sequence[ArmRow]) -> Iterator[str]:
    if (share := _disturbed(rows)) > _MANY_DISTURBED:
        yield f"{100 * share:.0f} % of the turns were disturbed."
    yield from (f"{arm_of(rows[0].folder, odd_text(odd))}." for odd in odd_starts(rows))


def odd_starts(rows: Sequence[ArmRow]) -> Iterator[OddStart]:
    """The starts of these arms that differ from the others of their arm."""
    labels = {row.label for row in rows}
    return (odd for row in rows[:1] for odd in row.statistics.odd_starts() if odd.arm in labels)


def odd_text(odd: OddStart) -> str:
    """`multiworker was 8 % slower in its start 5 than in its others`."""
    direction = "slower" if odd.change < 0 else "faster"
    change = f"{100 * abs(odd.change):.0f} % {direction}"
    return f"{odd.arm} was {change} in its start {odd.block.incarnation} than in its others"
