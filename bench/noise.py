"""How much the values of arms differ from turn to turn and from start to start. Pure.

Starts are the unit of replication (Kalibera and Jones 2013; Mytkowicz et al. 2009): the turns of a start have its luck
in common, so intervals rest on the means of starts. No test decides whether starts count.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tfdist.bench.design import Block, BlockTurn, Design, connected

if TYPE_CHECKING:
    from tfdist.bench.design import Array

FEWEST_STARTS = 4
"""A part of the variance of an arm with fewer starts is assumed."""
FEWEST_SURE = 6
"""Fewer starts too often differ so little by chance that their ratio looks sure: with 5, two equal versions whose turns
differ by 10 % were called different in 6 % of 2,000 benches, simulated as in lab/calibrate_statistics.py."""
ASSUMED_SD, ASSUMED_DF = 0.023, 8.0
"""The standard deviation of an arm's log throughput from start to start in the recorded benches, and the degrees of
freedom that its interval (1.3 to 3.9 %) corresponds to."""
OTHERS_DF = 6.0
"""Degrees of freedom with which the variance of all arms counts at most beside an arm's own: one for each arm beyond
two. Estimated from the data (Smyth 2004) they would be too few or infinite with few arms; simulations chose them."""
_NO_FREEDOM = 1e-9
_LEAST_VARIANCE = 1e-18
"""Smaller ones are rounding errors: images/s are not known to more than nine digits."""


@dataclass(frozen=True)
class Variance:
    """An estimated variance and its degrees of freedom."""

    value: float
    df: float


@dataclass(frozen=True)
class Noise:
    """The starts of connected arms, with the mean of each over its turns."""

    design: Design[str]
    """A turn for each start."""
    means: "Array"
    turns: "Array"
    """Number of turns of each start."""
    between_turns: Variance
    """Variance between the turns of a start, of all arms together."""

    @cached_property
    def figures(self) -> "Array":
        """The mean of each arm of the design over its starts."""
        return self.design.figures(self.means)

    @cached_property
    def starts(self) -> "Array":
        """Number of starts of each arm."""
        import numpy as np

        return np.bincount(self.design.arm_of).astype(float)

    def of_figure(self, arm: int) -> Variance | None:
        """The variance of an arm's mean, given the blocks as they were; None: unknown."""
        return self._of(self.design.weights(arm), [arm])

    def of_ratio(self, arm: int, baseline: int) -> Variance | None:
        """The variance of the difference of two means; None: unknown."""
        return self._of(self.design.weights(arm) - self.design.weights(baseline), [arm, baseline])

    def most_different(self) -> "tuple[BlockTurn[str], float, float, Noise | None]":
        """The start that differs most from the others of its arm, of arms with three or more.

        Returns:
            The start; its difference; the standard error of that by the noise of turns, infinite if it is unknown; and
            the starts without it, None if they are too few.
        """
        import numpy as np

        freedom = self.design.rest.freedom
        known = (freedom > _NO_FREEDOM) & (self.starts[self.design.arm_of] >= FEWEST_STARTS - 1)
        free = np.where(known, freedom, np.inf)
        changes = self.design.rest.residuals(self.means) / free
        # of two arms that differ by the same, the one whose own starts differ more, drift included
        own = np.bincount(self.design.arm_of, self.means) / self.starts
        most = int(np.lexsort((np.abs(self.means - own[self.design.arm_of]), np.abs(changes).round(9)))[-1])
        error = math.sqrt(self.between_turns.value / self.turns[most] / free[most])
        turns = self.design.turns[:most] + self.design.turns[most + 1 :]
        left: Noise | None = Noise(
            Design(turns), np.delete(self.means, most), np.delete(self.turns, most), self.between_turns
        )
        if not (known[most] and self.between_turns.df):
            error, left = math.inf, None
        return self.design.turns[most], float(changes[most]), error, left

    def _of(self, weights: "Array", arms: Sequence[int]) -> Variance | None:
        """The variance of `weights @ means`: of each arm its own, with that of all arms counted in."""
        import numpy as np

        own, squares = self._own
        others = self._others(arms, float(own.sum()), float(squares.sum()))
        if others is None:
            return None
        if len(own) < 3:  # the residuals of two arms are the same
            return Variance(float((weights**2).sum()) * others.value, others.df)
        counted = ASSUMED_DF if others.df > own.sum() else min(OTHERS_DF, len(own) - 2)
        share = np.bincount(self.design.arm_of, weights**2) / (counted + own)
        parts = [Variance(float((share * counted).sum()) * others.value, others.df)]
        parts += [Variance(part, df) for part, df in zip(share * squares, own, strict=True)]
        return sum_of(parts)

    @cached_property
    def _own(self) -> "tuple[Array, Array]":
        """The degrees of freedom of each arm's starts, and the sum of their squares."""
        import numpy as np

        own = np.maximum(np.bincount(self.design.arm_of, self.design.rest.freedom), _NO_FREEDOM)
        squares = np.bincount(self.design.arm_of, self.design.rest.residuals(self.means) ** 2)
        return own, squares.astype(float)

    def _others(self, arms: Sequence[int], df: float, squares: float) -> Variance | None:
        """The variance of the starts of all arms; if one of `arms` has few, with the assumed one counted in."""
        pooled = Variance(max(squares / df, _LEAST_VARIANCE), df) if df > _NO_FREEDOM else None
        if self.starts[list(arms)].min() >= FEWEST_STARTS or not self.between_turns.df:
            return pooled
        assumed = ASSUMED_SD**2 + self.between_turns.value / float(self.turns.mean())
        known = 0.0 if pooled is None else df
        return Variance((ASSUMED_DF * assumed + squares) / (ASSUMED_DF + known), ASSUMED_DF + known)


def noise_of(values: Mapping[str, Mapping[Block, float]]) -> tuple[Noise, ...]:
    """The noise of each set of arms that common blocks connect, from the value of each turn."""
    import numpy as np

    by_start: dict[tuple[str, Block], dict[Block, float]] = {}
    blocks = {block for of_arm in values.values() for block in of_arm}
    processes = {block: replace(block, round=0, group=abs(block.group)) for block in blocks}  # repeated turns: the same
    for arm, of_arm in values.items():
        for block, value in of_arm.items():
            by_start.setdefault((arm, processes[block]), {})[block] = value
    means: dict[str, dict[Block, float]] = {arm: {} for arm in values}
    number: dict[tuple[str, Block], int] = {}
    squares, df = 0.0, 0
    for index, design in enumerate(connected(by_start)):
        of_turns = np.array([by_start[turn.arm][turn.block] for turn in design.turns])
        squares += float((design.rest.residuals(of_turns) ** 2).sum())
        df += design.rest.df
        for (arm, start), mean in zip(design.arms, design.figures(of_turns), strict=True):
            block = replace(start, round=index)  # starts that turns beside each other connect
            means[arm][block] = float(mean)
            number[arm, block] = len(by_start[arm, start])
    turns = Variance(max(squares / df, _LEAST_VARIANCE) if df else 0.0, df)
    return tuple(
        Noise(
            design,
            np.array([means[turn.arm][turn.block] for turn in design.turns]),
            np.array([number[turn.arm, turn.block] for turn in design.turns], float),
            turns,
        )
        for design in connected(means)
    )


def sum_of(parts: Iterable[Variance]) -> Variance:
    """Variance of a sum of independent estimates (Welch and Satterthwaite)."""
    present = [part for part in parts if part.value > 0]
    total = sum(part.value for part in present)
    if not present:
        return Variance(_LEAST_VARIANCE, 1)
    return Variance(total, total**2 / sum(part.value**2 / part.df for part in present))
