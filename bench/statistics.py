"""Images per second of each arm over all rounds, and ratios of arms, with the intervals that decide. Pure.

The model is log throughput = arm + block + rest (design.py); noise.py estimates the rest. Calibrated by simulation:
bench_results/calibration/statistics.md.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tfdist.bench.design import Block, connected
from tfdist.bench.noise import Noise, Variance
from tfdist.launch.str_enum import StrEnum

ERROR = 0.05
"""The share of benches in which an interval may miss, or some of several equal arms may be called different."""
FEWEST_ROUNDS = 3
"""Fewer rounds give no interval and no verdict."""
_WIDEST = math.log(1000)
"""An interval of this factor up and down tells nothing, and is not shown."""


class ArmVerdict(StrEnum):
    """How one arm compares with another."""

    FASTER = "faster"
    SLOWER = "slower"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float
    level: float
    """The share of benches whose interval holds the true value: 0.95, or more for one of several comparisons."""


@dataclass(frozen=True)
class Figure:
    """An arm's images/s: the geometric mean over rounds."""

    images_per_s: float
    interval: Interval | None
    """Without the drift that all arms share. None: fewer than FEWEST_ROUNDS."""
    rounds: int


@dataclass(frozen=True)
class Comparison:
    """One arm's throughput over another's."""

    ratio: float
    """Ratio of their figures."""
    interval: Interval | None
    """It decides the verdict. None: too few rounds, or no rounds that connect the arms."""
    rounds: int
    """Rounds of the arm that has fewer."""
    comparisons: int
    """Number of comparisons of which it is one: the more, the wider the interval (Holm)."""

    @property
    def verdict(self) -> ArmVerdict:
        """`cannot tell` if the interval holds 1, or is missing."""
        if self.interval is None or self.interval.low <= 1 <= self.interval.high:
            return ArmVerdict.CANNOT_TELL
        return ArmVerdict.FASTER if self.interval.low > 1 else ArmVerdict.SLOWER


@dataclass(frozen=True)
class Estimate:
    """The natural logarithm of a ratio, and how well it is known."""

    log: float
    variance: Variance | None
    """None: too few rounds, or no rounds that connect the arms."""


@dataclass(frozen=True)
class Statistics:
    """All figures of one bench."""

    rounds: Mapping[str, Mapping[Block, float]]
    """The images/s of each arm's turns, all positive."""
    count_starts: bool = False
    """Variances always contain how much the starts of an arm differ, even if a test does not find it."""

    def figure(self, arm: str) -> Figure | None:
        """None without a turn. Figures of connected arms are of the same rounds: the model fills a missing one."""
        if not self.rounds[arm]:
            return None
        noise, row = self._noise_of[arm]
        rounds = len(self.rounds[arm])
        variance = _enough(noise.of_figure(row), rounds)
        return Figure(math.exp(self._log(arm)), interval_of(self._log(arm), variance, ERROR), rounds)

    def compare(self, pairs: Sequence[tuple[str, str]]) -> tuple[Comparison, ...]:
        """Each arm with its baseline, both with turns; `pairs` are the comparisons that a reader sees together.

        Holm (1979): the comparison with the most evidence is made at level 1 - ERROR / n, the next one at
        1 - ERROR / (n - 1), until one cannot tell; the others keep its level. The interval has that level too. So
        equal arms are called different in at most ERROR of all benches, and each interval misses in at most ERROR.
        """
        logs = [self._log(arm) - self._log(baseline) for arm, baseline in pairs]
        variances = [self._variance_of_ratio(*pair) for pair in pairs]
        errors = holm([p_value(*each) for each in zip(logs, variances, strict=True)])
        number = sum(variance is not None for variance in variances)
        return tuple(
            Comparison(
                math.exp(self._log(arm)) / math.exp(self._log(baseline)),
                interval_of(self._log(arm) - self._log(baseline), variance, error),
                min(len(self.rounds[arm]), len(self.rounds[baseline])),
                number,
            )
            for (arm, baseline), variance, error in zip(pairs, variances, errors, strict=True)
        )

    def ratio(self, arm: str, baseline: str) -> Estimate:
        """One arm over another, both with turns, for calculations with several benches."""
        return Estimate(self._log(arm) - self._log(baseline), self._variance_of_ratio(arm, baseline))

    def variance_of(self, arm: str) -> Variance:
        """Variance of the logarithm of an arm's figure, given the rounds as they were; the arm has turns."""
        noise, row = self._noise_of[arm]
        return noise.of_figure(row)

    @property
    def starts_differ(self) -> bool:
        """Whether arms differ from start to start by more than from turn to turn.

        Then intervals rest on the few starts and are wide; more incarnations narrow them, more rounds do not.
        """
        return any(noise.starts_differ for noise, _ in self._noise_of.values())

    @property
    def spreads_differ(self) -> bool:
        """Whether arms have plainly unequal spreads, so that each interval rests on its own arms' spreads."""
        return any(noise.spreads_differ for noise, _ in self._noise_of.values())

    @cached_property
    def _noise_of(self) -> Mapping[str, tuple[Noise, int]]:
        """Noise of the arms that each arm with a turn is connected with, and its index among them."""
        import numpy as np

        found = {}
        for design in connected(self.rounds):
            logs = np.log([self.rounds[turn.arm][turn.block] for turn in design.turns])
            noise = Noise(design, logs, self.count_starts)
            found.update({arm: (noise, row) for row, arm in enumerate(design.arms)})
        return found

    def _log(self, arm: str) -> float:
        noise, row = self._noise_of[arm]
        return float(noise.figures[row])

    def _variance_of_ratio(self, arm: str, baseline: str) -> Variance | None:
        noise, row = self._noise_of[arm]
        other_noise, other_row = self._noise_of[baseline]
        if noise is not other_noise or row == other_row:
            return None
        return _enough(noise.of_ratio(row, other_row), min(self._shared(arm), self._shared(baseline)))

    def _shared(self, arm: str) -> int:
        """The number of its turns beside which another arm was measured: only these compare it."""
        return sum(self._arms_in[block] > 1 for block in self.rounds[arm])

    @cached_property
    def _arms_in(self) -> Counter[Block]:
        return Counter(block for turns in self.rounds.values() for block in turns)


def _enough(variance: Variance, rounds: int) -> Variance | None:
    """None where no interval can be given: too few rounds, or all turns are needed to fit the model."""
    return variance if rounds >= FEWEST_ROUNDS and variance.df else None


def interval_of(log: float, variance: Variance | None, error: float) -> Interval | None:
    """Interval of e to the power of `log`; None without a variance, or too wide to say anything."""
    from scipy.special import stdtrit  # slow to import, and not needed by a launch

    if variance is None:
        return None
    half = float(stdtrit(variance.df, 1 - error / 2)) * math.sqrt(variance.value)
    return Interval(math.exp(log - half), math.exp(log + half), 1 - error) if half < _WIDEST else None


def p_value(log: float, variance: Variance | None) -> float | None:
    """Probability under the hypothesis that the true value is 0, by Student's distribution, two-sided."""
    from scipy.special import stdtr

    return None if variance is None else 2 * float(stdtr(variance.df, -abs(log) / math.sqrt(variance.value)))


def holm(p_values: Sequence[float | None]) -> list[float]:
    """The error at which each comparison is made; ERROR where there is none."""
    errors = [ERROR] * len(p_values)
    left = sum(p is not None for p in p_values)
    for p, index in sorted((p, index) for index, p in enumerate(p_values) if p is not None):
        errors[index] = ERROR / left
        if p < errors[index]:
            left -= 1
    return errors
