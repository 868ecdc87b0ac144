"""How much an arm's log throughput differs from turn to turn and from start to start. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tfdist.bench.design import Design, Projection

if TYPE_CHECKING:
    from tfdist.bench.design import Array

SPREADS_LEVEL = 0.01
"""Arms count as unequal in spread if equal ones would look as unequal in fewer benches than this."""
_LEAST_VARIANCE = 1e-18
"""Smaller ones are rounding errors: images/s are not known to more than nine digits."""
_ITERATIONS = 5


@dataclass(frozen=True)
class Variance:
    """An estimated variance and its degrees of freedom."""

    value: float
    df: float


@dataclass(frozen=True)
class Noise:
    """The noise of the turns of a design, from their log throughputs."""

    design: Design
    logs: "Array"
    count_starts: bool = False
    """Whether starts count as different without a test, where their difference can be estimated at all."""

    @cached_property
    def figures(self) -> "Array":
        """The log figure of each arm of the design."""
        return self.design.figures(self.logs)

    def of_figure(self, arm: int) -> Variance:
        """The variance of an arm's log figure, given the blocks as they were."""
        return self._of(self.design.weights(arm))

    def of_ratio(self, arm: int, baseline: int) -> Variance:
        """The variance of the difference of two log figures."""
        return self._of(self.design.weights(arm) - self.design.weights(baseline))

    @cached_property
    def starts_differ(self) -> bool:
        """Whether an arm's starts differ by more than its turns (F test); if not, their variances are pooled.

        If every turn has its own start, the difference of turns contains that of starts. The level of the test is the
        best compromise of coverage and power in simulations: the more turns a start has, the more a small difference
        between starts matters, so the sooner they count as different: 1 % for 6 turns, 4 % for 12.
        """
        from scipy.special import fdtrc

        if not self._between.df or not self._within.df:
            return False
        if self.count_starts:
            return True
        ratio = self._between.value / self._within.value
        level = (len(self.logs) / (self.design.start_of.max() + 1) / 60) ** 2
        return bool(fdtrc(self._between.df, self._within.df, ratio) < level)

    @cached_property
    def spreads_differ(self) -> bool:
        """Whether arms have plainly unequal spreads (Brown and Forsythe 1974); two arms always have a common one."""
        import numpy as np
        from scipy.special import fdtrc

        residuals = self.design.rest.residuals(self.logs)
        order, turns_of = np.argsort(self.design.arm_of, kind="stable"), np.bincount(self.design.arm_of)
        of_arms = np.split(residuals[order], np.cumsum(turns_of)[:-1])
        groups = [np.abs(group - np.median(group)) for group in of_arms if len(group) >= 3]
        turns = sum(map(len, groups))
        if len(of_arms) < 3 or len(groups) < 2:
            return False
        mean = np.concatenate(groups).mean()
        between = sum(len(group) * (group.mean() - mean) ** 2 for group in groups) / (len(groups) - 1)
        within = sum(len(group) * group.var() for group in groups) / (turns - len(groups))
        ratio = between / max(within, _LEAST_VARIANCE)
        return bool(fdtrc(len(groups) - 1, turns - len(groups), ratio) < SPREADS_LEVEL)

    def _of(self, weights: "Array") -> Variance:
        """The variance of `weights @ logs`."""
        import numpy as np

        turns = self._of_turns(weights)
        if not self.starts_differ:
            return turns
        # E[_between] = variance of turns + _turns_per_start * variance of starts
        share = float((np.bincount(self.design.start_of, weights) ** 2).sum()) / self._turns_per_start
        rest = max(turns.value - share * self._within.value, 0.0)
        return sum_of([Variance(share * self._between.value, self._between.df), Variance(rest, turns.df)])

    def _of_turns(self, weights: "Array") -> Variance:
        """The part of the turns: from one pooled spread, or from each arm's own."""
        import numpy as np

        spreads, df = self._spreads
        pooled = self._within if self.starts_differ else self._total
        values = pooled.value * spreads**2 * np.bincount(self.design.arm_of, weights**2)
        if not self.spreads_differ:
            return Variance(float(values.sum()), pooled.df)
        return Variance(float(values.sum()), float(values.sum() ** 2 / (values**2 / df).sum()))

    @cached_property
    def _spreads(self) -> "tuple[Array, Array]":
        """Each arm's spread and its degrees of freedom; 1 where all have the same one.

        Restricted maximum likelihood, by iteration: residuals are those of the model that weights the arms by spread.
        """
        import numpy as np

        spreads = np.ones(len(self.design.arms))
        within = self.design.rest_within_starts.df * 2 > self.design.rest.df
        df = np.ones_like(spreads)
        for _ in range(_ITERATIONS if self.spreads_differ else 0):
            fit = self.design.fit(spreads, within)
            df = np.maximum(np.bincount(self.design.arm_of, fit.freedom), 1)
            squares = np.bincount(self.design.arm_of, fit.residuals(self.logs) ** 2)
            spreads = spreads * np.sqrt(squares / df)
            spreads = np.maximum(spreads, max(np.median(spreads) / 10, 1e-6 * spreads.max()))
        return spreads, df

    @cached_property
    def _fit(self) -> Projection:
        return self.design.fit(self._spreads[0], within_starts=False) if self.spreads_differ else self.design.rest

    @cached_property
    def _fit_within_starts(self) -> Projection:
        if not self.spreads_differ:
            return self.design.rest_within_starts
        return self.design.fit(self._spreads[0], within_starts=True)

    @cached_property
    def _total(self) -> Variance:
        """Variance of turns, starts included."""
        return _mean_square(self._fit.residuals(self.logs), self._fit.df)

    @cached_property
    def _within(self) -> Variance:
        """Variance between the turns of a start."""
        return _mean_square(self._fit_within_starts.residuals(self.logs), self._fit_within_starts.df)

    @cached_property
    def _between(self) -> Variance:
        """Variance between the starts of an arm."""
        rest = self._fit.residuals(self.logs) - self._fit_within_starts.residuals(self.logs)
        return _mean_square(rest, self._fit.df - self._fit_within_starts.df)

    @cached_property
    def _turns_per_start(self) -> float:
        return self._fit.squares_left_of(self.design.start_of) / self._between.df


def _mean_square(rest: "Array", df: int) -> Variance:
    return Variance(max(float((rest**2).sum()) / df, _LEAST_VARIANCE) if df else 0.0, df)


def sum_of(parts: Iterable[Variance]) -> Variance:
    """Variance of a sum of independent estimates (Welch and Satterthwaite)."""
    present = [part for part in parts if part.value > 0]
    total = sum(part.value for part in present)
    return Variance(total, total**2 / sum(part.value**2 / part.df for part in present))
