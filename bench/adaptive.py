"""What the starts of a bench so far decide: which arms are slower for sure, and whether more starts tell more. Pure.

A bench is looked at after each start. Each look has an equal part of `ERROR` (as in Pocock 1977, but by Bonferroni's
bound, so that looks may depend on each other), which the comparisons with the best share: that many leave the true best
in with this probability (Gupta 1965). So it is right whenever the bench ends. bench_results/calibration/adaptive.md has
how often that is so, also where all arms are equal, and what it costs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from tfdist.bench.factors import can_wait, candidates
from tfdist.bench.folder import BenchFile
from tfdist.bench.report.baseline import is_same_work
from tfdist.bench.report.certainty import same_pairs
from tfdist.bench.report.summary import ArmRow, fastest, rank
from tfdist.bench.statistics import ERROR, Statistics
from tfdist.bench.suites.explain import parts_of
from tfdist.strategies.catalog import Exchange
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

FEWEST_STARTS = 2
"""A bench does not end before, so that figures are means of several starts."""


@dataclass(frozen=True)
class Look:
    """What is known of the arms that compete."""

    best: str
    """The one with the highest throughput."""
    slower: tuple[str, ...] = ()
    """Those that are slower for sure."""
    open: tuple[str, ...] = ()
    """Those that may be faster than the best by more than the margin, and are not slower for sure."""
    hopeless: bool = False
    """The starts that are left would decide at most half of `open`, if ratios and noise stay as they are."""

    @property
    def is_decided(self) -> bool:
        """Whether more starts would change nothing."""
        return self.hopeless or not self.open


def look(
    statistics: Statistics, rivals: Sequence[str], *, starts: int, planned: int, equal: float, number: int | None = None
) -> Look:
    """Compare these arms, at least one, after `starts` of `planned` starts.

    Args:
        statistics: of all turns so far.
        rivals: the arms that compete, with turns; not those that were dropped before.
        starts: starts so far.
        planned: looks that share the error.
        equal: the margin, as a share.
        number: of arms that compete, dropped ones included; None: of `rivals`.
    """
    best = max(rivals, key=statistics.log)
    error = ERROR / planned / max((number or len(rivals)) - 1, 1)
    slower, undecided, hopeful = [], [], 0
    for arm in (arm for arm in rivals if arm != best):
        ratio = statistics.ratio(arm, best)
        behind, half = -ratio.log, ratio.half(error)
        if behind > max(half, math.log1p(statistics.least_of(arm, best))):
            slower.append(arm)
        elif half - behind >= math.log1p(equal):
            undecided.append(arm)
            at_the_end = half * math.sqrt(starts / planned)
            hopeful += behind > at_the_end or at_the_end - behind < math.log1p(equal)
    return Look(best, tuple(slower), tuple(undecided), bool(undecided) and 2 * hopeful <= len(undecided))


@dataclass(frozen=True)
class Decision:
    """What a bench does after a look."""

    look: Look
    dropped: tuple[str, ...]
    """Arms that are not started again: nothing that is left to compare needs them."""
    joining: tuple[str, ...]
    """Arms that are measured from now on: combinations of a matrix (`factors.candidates`), and what they are compared
    with."""
    waiting: tuple[str, ...]
    """The dropped arms that come back if those that are joining are slower than predicted (`factors.can_wait`)."""
    ends: bool


def decide(
    rows: Sequence[ArmRow], bench: BenchFile, starts: int, specs: Mapping[str, StrategyChoice]
) -> Decision | None:
    """What to do after this number of starts; None: nothing can be compared.

    Args:
        rows: the arms of the bench.
        bench: its plan, without the arms that were dropped before.
        starts: starts so far.
        specs: of the arms that can run.
    """
    measured = [row for row in rows if row.measured]
    ranked, unranked = rank(measured)
    rivals = list(ranked)
    if ranked and (one := fastest(ranked).one_device):  # whether distribution pays is an answer, too
        rivals += [row for row in measured if row.label == one.label and row not in ranked]
    alive = [row.label for row in rivals if row.label not in bench.slower]
    if len(rivals) < 2 or not alive:
        return None
    equal, gone = bench.suite.equal, bench.dropped.keys()
    found = look(rows[0].statistics, alive, starts=starts, planned=bench.looks, equal=equal, number=len(rivals))
    slower = {*found.slower, *bench.slower}
    left = [row for row in ranked if row.label not in slower]
    planned = {run.arm for run in bench.plan}
    joining, waiting = _joining(measured, planned, bench, specs)
    worth = [row for row in left if row.arm not in waiting]
    needed = {*unranked, *_compared(worth), *_equal_pair(worth, measured)}
    needed |= {bench.suite.baseline} if bench.suite.baseline else set()
    if bench.suite.explain:
        needed |= parts_of(bench.suite, specs, {row.arm for row in worth})
    dropped = tuple(row.arm for row in measured if row.arm not in needed and row.arm not in gone)
    joining += tuple(sorted((needed & gone) | ({*_baselines(worth, specs)} - planned)))
    enough = not joining and all(len(row.starts) >= FEWEST_STARTS for row in left)  # some may have joined later
    ends = bench.precision is None and enough and found.is_decided
    back = tuple(row.arm for row in left if row.arm in waiting and row.arm in dropped)
    return Decision(found, dropped, joining, back, ends)


def _joining(
    measured: Sequence[ArmRow], planned: Set[str], bench: BenchFile, specs: Mapping[str, StrategyChoice]
) -> tuple[tuple[str, ...], Set[str]]:
    """The combinations that may be the fastest and those that check the predictions; and the arms that can wait."""
    logs = {row.arm: math.log(row.rate) for row in measured}
    failed = planned - logs.keys()
    able = [arm for arm in bench.suite.arms if arm.name in specs and arm.name not in failed]
    if planned >= {arm.name for arm in able}:
        return (), set()
    several = [arm for arm, spec in specs.items() if spec.replicas > 1 and spec.exchange is not Exchange.NONE]
    joining = tuple(arm for arm in candidates(able, logs, bench.suite.seed, several) if arm not in planned)
    return joining, can_wait(able, logs, joining)


def _baselines(rows: Sequence[ArmRow], specs: Mapping[str, StrategyChoice]) -> Iterator[str]:
    """The arms that these are compared with, also those that were not measured yet."""
    for spec in (specs[row.arm] for row in rows if row.arm in specs):
        for name, other in specs.items():
            independent = other.exchange is Exchange.NONE and other.replicas == spec.replicas
            one_device = other.strategy is StrategyName.ONE_DEVICE
            if (independent or one_device) and is_same_work(spec.to_json(), other.to_json()):
                yield name


def _compared(rows: Sequence[ArmRow]) -> Iterator[str]:
    """These arms, and those that they are compared with."""
    for row in rows:
        yield row.label
        yield from (versus.label for versus in (row.one_device, row.independent) if versus)


def _equal_pair(left: Sequence[ArmRow], measured: Sequence[ArmRow]) -> set[str]:
    """Two equal arms (A/A), which show the noise: of those that are left, if there are any."""
    labels = {row.label for row in left}
    pairs = [{pair.arm, pair.other} for pair in same_pairs(measured)]
    return next((pair for pair in pairs if pair & labels), pairs[0] if pairs else set())
