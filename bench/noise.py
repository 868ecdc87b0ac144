"""How much an arm's log throughput differs from turn to turn and from start to start. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tfdist.bench.design import Design

if TYPE_CHECKING:
    from tfdist.bench.design import Array

STARTS_LEVEL = 0.05
"""Arms count as different from start to start if equal starts would look as different in fewer benches than this."""
SPREADS_LEVEL = 0.01
"""The same for the spreads of arms."""
_LEAST_VARIANCE = 1e-18
"""Smaller ones are rounding errors: images/s are not known to more than nine digits."""


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

    def of_figure(self, arm: int) -> Variance:
        """The variance of an arm's log figure, given the blocks as they were."""
        weights = self.design.weights[arm]
        return self._from_own(weights) if self.spreads_differ else self._from_pool(weights)

    def of_ratio(self, arm: int, baseline: int) -> Variance:
        """The variance of the difference of two log figures.

        If spreads differ, it comes from the two arms' turns alone, as in a paired t test; from each one's own spread if
        they have no common block.
        """
        weights = self.design.weights[arm] - self.design.weights[baseline]
        if not self.spreads_differ:
            return self._from_pool(weights)
        both = self.design.by_arm[:, [arm, baseline]].sum(axis=1) > 0
        turns = tuple(turn for turn, used in zip(self.design.turns, both, strict=True) if used)
        pair = Noise(Design(turns), self.logs[both])
        return pair._from_pool(weights[both]) if pair._pooled.df else self._from_own(weights)

    def _from_pool(self, weights: "Array") -> Variance:
        """Of `weights @ logs`, if all arms have the same spread."""
        squares = float((weights**2).sum())
        if not self.starts_differ:
            return Variance(self._pooled.value * squares, self._pooled.df)
        # E[_between] = variance of turns + _turns_per_start * variance of starts
        share = float(((self.design.by_start.T @ weights) ** 2).sum()) / self._turns_per_start
        turns = Variance(max(squares - share, 0.0) * self._within.value, self._within.df)
        return _sum([Variance(share * self._between.value, self._between.df), turns])

    def _from_own(self, weights: "Array") -> Variance:
        """The same from each arm's own spread."""
        squares = self.design.by_arm.T @ weights**2
        return _sum(Variance(own.value * float(s), own.df) for own, s in zip(self._own, squares, strict=True))

    @cached_property
    def starts_differ(self) -> bool:
        """Whether an arm's starts differ by more than its turns (F test); if not, their variances are pooled.

        If every turn has its own start, the difference of turns contains that of starts.
        """
        from scipy.stats import f

        if not self._between.df or not self._within.df:
            return False
        ratio = self._between.value / self._within.value
        return bool(f.sf(ratio, self._between.df, self._within.df) < STARTS_LEVEL)

    @cached_property
    def spreads_differ(self) -> bool:
        """Whether arms have plainly unequal spreads (Brown and Forsythe 1974); two arms always have a common one."""
        from scipy.stats import levene

        residuals = self.design.rest @ self.logs
        of_arms = [residuals[column > 0] for column in self.design.by_arm.T]
        groups = [group for group in of_arms if len(group) >= 3]
        if len(of_arms) < 3 or len(groups) < 2 or self._pooled.value == _LEAST_VARIANCE:
            return False
        return bool(levene(*groups, center="median").pvalue < SPREADS_LEVEL)

    @cached_property
    def _pooled(self) -> Variance:
        return self._within if self.starts_differ else _mean_square(self.design.rest, self.logs)

    @cached_property
    def _own(self) -> tuple[Variance, ...]:
        """Of each arm's turns. Residuals mix the arms' variances by known parts; solve for them (MINQUE, Rao 1970)."""
        import numpy as np

        arms, maker = self.design.by_arm, self.design.rest
        solved = np.linalg.lstsq(arms.T @ maker**2 @ arms, arms.T @ (maker @ self.logs) ** 2, rcond=None)[0]
        values = np.maximum(solved, self._pooled.value / 100)
        df = np.maximum(arms.T @ np.diag(maker), 1)
        return tuple(Variance(float(value), float(own)) for value, own in zip(values, df, strict=True))

    @cached_property
    def _within(self) -> Variance:
        """Between the turns of a start."""
        return _mean_square(self.design.rest_within_starts, self.logs)

    @cached_property
    def _between(self) -> Variance:
        """Between the starts of an arm."""
        return _mean_square(self._starts, self.logs)

    @cached_property
    def _turns_per_start(self) -> float:
        return float(((self._starts @ self.design.by_start) ** 2).sum()) / self._between.df

    @cached_property
    def _starts(self) -> "Array":
        return self.design.rest - self.design.rest_within_starts


def _mean_square(projection: "Array", logs: "Array") -> Variance:
    df = round(float(projection.trace()))
    squares = float(((projection @ logs) ** 2).sum())
    return Variance(max(squares / df, _LEAST_VARIANCE) if df else 0.0, df)


def _sum(parts: Iterable[Variance]) -> Variance:
    """Of independent estimates (Welch and Satterthwaite)."""
    present = [part for part in parts if part.value > 0]
    total = sum(part.value for part in present)
    return Variance(total, total**2 / sum(part.value**2 / part.df for part in present))
