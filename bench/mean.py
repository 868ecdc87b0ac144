"""The mean of a quantity over the turns of a bench, with its interval. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tfdist.bench.design import Block, connected
from tfdist.bench.noise import Noise
from tfdist.bench.statistics import ERROR, FEWEST_ROUNDS


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
