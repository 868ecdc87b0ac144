"""Quantities that were measured once for each seed: their means and ratios, with intervals over the seeds. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfdist.bench.mean_log import interval_of_mean
from tfdist.bench.statistics import Interval


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
