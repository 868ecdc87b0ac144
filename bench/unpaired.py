"""The same arms in two benches, whose turns did not alternate: ratios with the intervals that decide. Pure.

Each bench has its own noise, of starts (noise.py); the variance of a ratio of two benches is the sum of
theirs, with the degrees of freedom of Welch and Satterthwaite. Calibrated by simulation:
bench_results/calibration/compare.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean, median, variance

from tfdist.bench.design import Block
from tfdist.bench.noise import Variance, sum_of
from tfdist.bench.statistics import FEWEST_ROUNDS, Comparison, Estimate, Statistics, holm

_DRIFT, _DRIFT_DF = 5.0, 2.5
"""A random walk that lasts three benches: the variance of its mean over the last third about its mean over the first
is twice this times its variance within a third, which varies like one of 2.5 degrees of freedom."""
_REACTION = 0.3
"""Share of a change of the machine's speed by which an arm may differ from the anchor, one standard deviation: assumed.
Between two recorded benches of suite cpu, on machines of which one was 1.6 times as fast, it was 0.18."""
_KNOWN = 1000.0
"""Degrees of freedom of a variance that is assumed, not estimated."""


@dataclass(frozen=True)
class TwoBenches:
    """All arms of two benches, also those that only one has: they show the noise, too."""

    base: Statistics
    new: Statistics

    def compare(self, pairs: Sequence[tuple[str, str | None]]) -> tuple[Comparison, ...]:
        """New over base, of arms that both have, Holm over all of them with the error of the new bench.

        Each pair is an arm and its anchor: with an anchor, the ratio is that of their speed-ups over it, and a change
        of the whole machine cancels. Without, it is that of images/s, and its interval contains the machine's drift.
        """
        machine = self._machine([arm for pair in pairs for arm in pair if arm is not None])
        estimates = [self._of(arm, anchor, machine) for arm, anchor in pairs]
        errors = holm([each.p_value for each in estimates], self.new.error)
        number = sum(each.variance is not None for each in estimates)
        found = []
        for (arm, anchor), each, error in zip(pairs, estimates, errors, strict=True):
            rounds = min(len(side.rounds[arm]) for side in (self.base, self.new))
            least = max(side.least_of(arm, anchor or arm) for side in (self.base, self.new))
            found.append(Comparison(math.exp(each.log), each.interval(error), rounds, number, least))
        return tuple(found)

    def _of(self, arm: str, anchor: str | None, machine: float) -> Estimate:
        sides = tuple(_of_bench(*side, arm, anchor) for side in zip((self.base, self.new), self._levels, strict=True))
        log = sides[1].log - sides[0].log
        floor = math.hypot(*(side.floor for side in sides))
        variances = [side.variance for side in sides if side.variance]
        if len(variances) < len(sides):
            return Estimate(log, None)
        if anchor is not None:
            variances.append(Variance((_REACTION * machine) ** 2, _KNOWN))
        return Estimate(log, sum_of(variances), floor)

    @cached_property
    def _levels(self) -> tuple[Variance | None, ...]:
        """The variance of the machine's speed in each bench."""
        return level_noise(self.base.rounds), level_noise(self.new.rounds)

    def _machine(self, arms: Sequence[str]) -> float:
        """How much faster these arms together became, as a logarithm."""
        changes = (self.new.estimate(arm).log - self.base.estimate(arm).log for arm in dict.fromkeys(arms))
        return median([*changes] or [0.0])


def _of_bench(statistics: Statistics, level: Variance | None, arm: str, anchor: str | None) -> Estimate:
    if anchor is not None:
        return statistics.ratio(arm, anchor)
    estimate = statistics.estimate(arm)
    return replace(estimate, variance=sum_of([estimate.variance, level]) if estimate.variance and level else None)


def level_noise(rounds: Mapping[str, Mapping[Block, float]]) -> Variance | None:
    """The variance of the machine's log speed from bench to bench, by its drift from round to round in this one.

    Drift is taken for a random walk that continues between two benches as long as in a bench. None in too few rounds.
    """
    blocks: dict[Block, list[float]] = {}
    for arm in rounds.values():
        middle = fmean(map(math.log, arm.values())) if arm else 0.0
        for block, rate in arm.items():
            blocks.setdefault(block, []).append(math.log(rate) - middle)
    if len(blocks) < FEWEST_ROUNDS:
        return None
    return Variance(_DRIFT * variance(map(fmean, blocks.values())), _DRIFT_DF)
