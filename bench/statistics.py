"""From raw windows to figures: throughput, intervals over rounds, comparisons paired by round. Pure and seeded."""

import math
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from tfdist.launch.str_enum import StrEnum

RESAMPLES = 2000
FEWEST_ROUNDS = 3
"""With fewer rounds there is no interval and no verdict."""


class ArmVerdict(StrEnum):
    """What rounds can say about two arms."""

    FASTER = "faster"
    SLOWER = "slower"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Interval:
    """The spread over rounds."""

    low: float
    high: float
    kind: str
    """`95 %`: a bootstrap interval of the median; `min..max`: there were too few rounds for one."""


@dataclass(frozen=True)
class Comparison:
    """One arm's throughput over another's."""

    ratio: float
    """The median over the rounds that both have; without such a round the ratio of the medians."""
    interval: Interval | None
    rounds: int
    """Rounds that both have."""
    verdict: ArmVerdict


def interval_over_rounds(values: Sequence[float], seed: int = 0) -> Interval | None:
    """The spread of one figure a round; None for a single round.

    The percentile bootstrap of the median (Efron 1979). It does not depend on the order of `values`. Over three to five
    rounds it is no wider than their own range, so that it covers less than 95 %: `compare` asks for more than this.
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
    """What the ratios of paired rounds can say.

    The bootstrap interval alone would call two equal arms different in a quarter of all benches of three rounds (all
    three ratios on one side of 1). So Student's interval of the mean log ratio must leave 1 out as well: 5 % at most.
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
    from scipy.stats import t  # a heavy import, which a launch that shows one figure does not need

    logs = [math.log(ratio) for ratio in ratios]
    half = float(t.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(fmean(logs) - half), math.exp(fmean(logs) + half)
