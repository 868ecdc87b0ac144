"""The interval of a geometric mean of independent measurements. Pure."""

import math
from collections.abc import Sequence

from tfdist.bench.statistics import ERROR, FEWEST_ROUNDS, Interval


def interval_of_mean(logs: Sequence[float], mean: float) -> Interval | None:
    """Student's t interval of the mean of logarithms, as factors; None for fewer than FEWEST_ROUNDS."""
    from scipy.special import stdtrit  # slow to import, and not needed by a launch

    number = len(logs)
    if number < FEWEST_ROUNDS:
        return None
    variance = math.fsum((log - mean) ** 2 for log in logs) / (number - 1)
    half = float(stdtrit(number - 1, 1 - ERROR / 2)) * math.sqrt(variance / number)
    return Interval(math.exp(mean - half), math.exp(mean + half), 1 - ERROR)
