"""Means of a quantity over the turns of a bench, over measurements or over seeds, each with its interval. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdist.bench.design import Block, connected
from tfdist.bench.noise import Noise
from tfdist.bench.statistics import ERROR, FEWEST_ROUNDS, Interval


@dataclass(frozen=True)
class OverSeeds:
    """A positive quantity: its geometric mean over seeds."""

    value: float
    interval: Interval | None
    """Student's, of the logarithms; None: fewer than FEWEST_ROUNDS seeds."""
    seeds: int


def over_seeds(values: Sequence[float]) -> OverSeeds | None:
    """None without values."""
    if not values:
        return None
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    return OverSeeds(math.exp(mean), interval_of_mean(logs, mean), len(logs))


def ratio_over_seeds(ours: Mapping[int, float], theirs: Mapping[int, float]) -> OverSeeds | None:
    """Ours over theirs, by seed: the same initial weights and order of data. None without a common seed."""
    return over_seeds([value / theirs[seed] for seed, value in sorted(ours.items()) if seed in theirs])


def interval_of_mean(logs: Sequence[float], mean: float) -> Interval | None:
    """Student's t interval of the mean of logarithms, as factors; None for fewer than FEWEST_ROUNDS."""
    from scipy.special import stdtrit  # slow to import, and not needed by a launch

    number = len(logs)
    if number < FEWEST_ROUNDS:
        return None
    variance = math.fsum((log - mean) ** 2 for log in logs) / (number - 1)
    half = float(stdtrit(number - 1, 1 - ERROR / 2)) * math.sqrt(variance / number)
    return Interval(math.exp(mean - half), math.exp(mean + half), 1 - ERROR)


@dataclass(frozen=True)
class Mean:
    """A mean, in the unit of its values."""

    value: float
    low: float | None = None
    """Limits of the 95 % interval; None: fewer than FEWEST_ROUNDS."""
    high: float | None = None

    @property
    def differs(self) -> bool:
        """Whether it is surely not 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


def mean_of(values: Mapping[Block, float]) -> Mean:
    """The mean of at least one value. Its interval is Student's; if starts of processes differ by more than turns, it
    rests on the starts, as in `noise.py`."""
    import numpy as np
    from scipy.special import stdtrit

    (design,) = connected({"": values})
    ordered = [values[turn.block] for turn in design.turns]
    mean = math.fsum(ordered) / len(ordered)
    if len(values) < FEWEST_ROUNDS:
        return Mean(mean)
    variance = Noise(design, np.array(ordered)).of_figure(0)
    half = float(stdtrit(variance.df, 1 - ERROR / 2)) * math.sqrt(variance.value)
    return Mean(mean, mean - half, mean + half)
