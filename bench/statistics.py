"""Intervals over rounds, and comparisons of arms paired by round. Pure and seeded."""

import math
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from tfdist.launch.str_enum import StrEnum

RESAMPLES = 2000
FEWEST_ROUNDS = 3
"""Fewer rounds give no interval and no verdict."""


class ArmVerdict(StrEnum):
    """How one arm compares with another."""

    FASTER = "faster"
    SLOWER = "slower"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Interval:
    """The spread over rounds."""

    low: float
    high: float
    kind: str
    """`95 %`: a bootstrap interval of the median; `min..max`: of fewer than FEWEST_ROUNDS."""


@dataclass(frozen=True)
class Comparison:
    """One arm's throughput over another's."""

    ratio: float
    """The median over common rounds; without any, the ratio of the medians."""
    interval: Interval | None
    rounds: int
    """Number of common rounds."""
    verdict: ArmVerdict


def interval_over_rounds(values: Sequence[float], seed: int = 0) -> Interval | None:
    """The spread of one figure a round; None for a single round.

    The percentile bootstrap of the median (Efron 1979), independent of the order of `values`. Over three to five rounds
    it is no wider than their range and covers less than 95 %, so `compare` requires more than this.
    """
    if len(values) < 2:
        return None
    if len(values) < FEWEST_ROUNDS:
        return Interval(min(values), max(values), "min..max")
    draw = random.Random(seed)
    ordered = sorted(values)
    medians = sorted(median(draw.choices(ordered, k=len(ordered))) for _ in range(RESAMPLES))
    edge = int(RESAMPLES * 0.025)
    return Interval(medians[edge], medians[-1 - edge], "95 %")


def compare(rounds: Mapping[Hashable, float], baseline: Mapping[Hashable, float]) -> Comparison:
    """`rounds` over `baseline`, throughputs by round, paired by round. Neither may be empty."""
    ratios = [value / baseline[key] for key, value in rounds.items() if key in baseline]
    if not ratios:
        ratio = median(rounds.values()) / median(baseline.values())
        return Comparison(ratio, None, 0, ArmVerdict.CANNOT_TELL)
    return Comparison(median(ratios), interval_over_rounds(ratios), len(ratios), verdict(ratios))


def verdict(ratios: Sequence[float]) -> ArmVerdict:
    """The verdict on the ratios of paired rounds.

    The bootstrap interval alone would find a difference between equal arms in a quarter of all benches of three rounds
    (all three ratios on one side of 1). So 1 must also lie outside Student's interval of the mean log ratio: 5 %.
    """
    if len(ratios) < FEWEST_ROUNDS:
        return ArmVerdict.CANNOT_TELL
    low, high = _student_95(ratios)
    if low <= 1 <= high:
        return ArmVerdict.CANNOT_TELL
    interval = interval_over_rounds(ratios)
    if interval is not None and low > 1 and interval.low > 1:
        return ArmVerdict.FASTER
    return ArmVerdict.SLOWER if interval is not None and high < 1 and interval.high < 1 else ArmVerdict.CANNOT_TELL


def _student_95(ratios: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of the geometric mean."""
    from scipy.stats import t  # slow to import, and not needed by a launch

    logs = [math.log(ratio) for ratio in ratios]
    half = float(t.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(fmean(logs) - half), math.exp(fmean(logs) + half)
