"""Means of a quantity over the starts of arms, or over seeds, each with its interval. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import numpy as np
from scipy.special import stdtrit

from tfdist.bench.design import Block
from tfdist.bench.growth import Array
from tfdist.bench.noise import ASSUMED_DF, ASSUMED_SD, FEWEST_STARTS, OTHERS_DF
from tfdist.bench.statistics import ERROR, FEWEST_ROUNDS, Interval


@dataclass(frozen=True)
class OverSeeds:
    """A positive quantity: its geometric mean over seeds."""

    value: float
    interval: Interval | None
    """Student's, of the logarithms; None: fewer than FEWEST_ROUNDS seeds."""


def over_seeds(values: Sequence[float]) -> OverSeeds | None:
    """None without values."""
    if not values:
        return None
    logs = [math.log(value) for value in values]
    number = len(logs)
    mean = fmean(logs)
    if number < FEWEST_ROUNDS:
        return OverSeeds(math.exp(mean), None)
    half = float(stdtrit(number - 1, 1 - ERROR / 2)) * stdev(logs) / math.sqrt(number)
    return OverSeeds(math.exp(mean), Interval(math.exp(mean - half), math.exp(mean + half), 1 - ERROR))


def ratio_over_seeds(ours: Mapping[int, float], theirs: Mapping[int, float]) -> OverSeeds | None:
    """Ours over theirs, by seed: the same initial weights and order of data. None without a common seed."""
    return over_seeds([value / theirs[seed] for seed, value in sorted(ours.items()) if seed in theirs])


@dataclass(frozen=True)
class Mean:
    """A mean over the starts of an arm, in the unit of its values."""

    value: float
    low: float | None
    """Limits of the 95 % interval; None: fewer than FEWEST_ROUNDS turns."""
    high: float | None
    starts: tuple[float, ...]
    """The mean of each start over its turns."""

    @property
    def differs(self) -> bool:
        """Whether it is surely not 0: its interval does not hold 0, and the starts agree on the sign."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high and not self.disagrees

    @property
    def disagrees(self) -> bool:
        """Whether it is above 0 in one start and below in another."""
        return min(self.starts) < 0 < max(self.starts)

    @property
    def spread(self) -> float:
        """How much the largest start exceeds the smallest, of a positive quantity: 0.05 is 5 %."""
        return max(self.starts) / min(self.starts) - 1


def means_of(
    values: Mapping[str, Mapping[Block, float]], scales: Mapping[str, float], arms: int, least: float = -math.inf
) -> Mapping[str, Mean]:
    """The mean of a quantity over the starts of each arm, with Student's interval.

    Args:
        values: those of each arm's turns; an arm without any has no mean.
        scales: the time of a step of each arm, in the unit of its values.
        arms: number of arms whose starts change a value: 2 for a difference of two.
        least: the smallest possible value; limits are not below it.
    """
    starts = {arm: _by_start(turns, scales[arm]) for arm, turns in values.items() if turns}
    if not starts:
        return {}
    found = {}
    for (arm, of_arm), relative in zip(starts.items(), _relative_halves(starts, arms), strict=True):
        each = tuple(scales[arm] * fmean(start) for start in of_arm.values())
        value = fmean(each)
        half = scales[arm] * float(relative)
        if len(values[arm]) >= FEWEST_ROUNDS:
            found[arm] = Mean(value, max(value - half, least), value + half, each)
        else:
            found[arm] = Mean(value, None, None, each)
    return found


def _relative_halves(starts: Mapping[str, Mapping[Block, Sequence[float]]], arms: int) -> Array:
    """Half of the interval of each arm, relative to its scale; `arms`: as in `means_of`.

    The variance of a start's mean is the arm's own, shrunk towards that of all arms. With fewer starts than
    FEWEST_STARTS, ASSUMED_SD and the noise of turns count, too. The degrees of freedom of the sum are Satterthwaite's
    (1946).
    """
    blocks = sorted({block for of_arm in starts.values() for block in of_arm})
    means = np.array([[fmean(of_arm.get(block, [math.nan])) for block in blocks] for of_arm in starts.values()])
    rest = np.nan_to_num(means - np.nanmean(means, axis=1, keepdims=True))
    number = np.isfinite(means).sum(axis=1)
    turns = np.array([sum(map(len, of_arm.values())) for of_arm in starts.values()])
    own = np.maximum((rest**2).sum(axis=1), 1e-18)
    df = number - 1
    pooled = own.sum() / max(df.sum(), 1)
    # the more arms vary together, as with the starts of a reference, the fewer they count as
    others = np.minimum(df * (own.sum() ** 2 / ((rest @ rest.T) ** 2).sum().clip(1e-36) - 1).clip(0), OTHERS_DF)
    # nor do they say much of an arm that varies more than they do
    others = others * np.minimum(1, pooled * df / own) ** 2
    every_start = [start for of_arm in starts.values() for start in of_arm.values()]
    noise = [turn - fmean(start) for start in every_start for turn in start]
    noise_df = len(noise) - number.sum()
    assumed = arms * ASSUMED_SD**2 + math.fsum(each**2 for each in noise) / max(noise_df, 1) * number / turns
    counted = np.where((number < FEWEST_STARTS) & (noise_df > 0), ASSUMED_DF, 0)
    sizes = np.array([own, others * pooled, counted * assumed])
    freedoms = np.array([df, others, counted])
    freedom = sizes.sum(axis=0) ** 2 / (sizes**2 / freedoms.clip(1e-9)).sum(axis=0)
    errors = np.sqrt(sizes.sum(axis=0) / freedoms.sum(axis=0).clip(1) / number)
    halves: Array = stdtrit(np.maximum(freedom, df.clip(1)), 1 - ERROR / 2) * errors
    return halves


def _by_start(turns: Mapping[Block, float], scale: float) -> Mapping[Block, Sequence[float]]:
    """The values over the scale, by the block of the start."""
    starts: dict[Block, list[float]] = {}
    for block, value in sorted(turns.items()):
        starts.setdefault(replace(block, round=0), []).append(value / scale)
    return starts
