"""Images per second of each arm over all starts, and ratios of arms, with the intervals that decide. Pure.

The model is log throughput = arm + block + rest (design.py); noise.py estimates the rest, by start. Calibrated by
simulation: bench_results/calibration/statistics.md.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tfdist.bench.design import Block
from tfdist.bench.noise import FEWEST_STARTS, Noise, Variance, noise_of
from tfdist.launch.str_enum import StrEnum
from tfdist.launch.text import percent

ERROR = 0.05
"""The share of benches in which an interval may miss, or some of several equal arms may be called different."""
FEWEST_ROUNDS = 3
"""Fewer rounds give no interval and no verdict."""
FLOOR = 0.01
"""Standard deviation of a ratio that no bench shows, unless the machine's history says another one."""
LEAST_OF_FEW_STARTS = 0.05
"""Smaller differences between arms with fewer starts than FEWEST_STARTS have no verdict."""
_ODD, _ODD_ERRORS = 0.05, 4.0
"""A start is odd that differs from the others of its arm by more than this share and number of standard errors."""
_LEAST_ERROR = 1e-12
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
    """An arm's images/s: the geometric mean over its starts of the mean over the rounds of each."""

    images_per_s: float
    interval: Interval | None
    """The interval of `images_per_s`, free of the drift that all arms share. None: fewer than FEWEST_ROUNDS."""
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
    least: float = 0.0
    """Smaller differences, as a share, have no verdict."""

    @property
    def verdict(self) -> ArmVerdict:
        """`cannot tell` if the interval holds 1 or is missing, or the difference is smaller than `least`."""
        if self.interval is None or self.interval.low <= 1 <= self.interval.high:
            return ArmVerdict.CANNOT_TELL
        if abs(math.log(self.ratio)) < math.log1p(self.least):
            return ArmVerdict.CANNOT_TELL
        return ArmVerdict.FASTER if self.interval.low > 1 else ArmVerdict.SLOWER

    def __str__(self) -> str:
        """`1.12 times (95% interval 1.05 to 1.20)`."""
        of = self.interval
        return f"{self.ratio:.2f} times" + (
            f" ({percent(of.level)} interval {of.low:.2f} to {of.high:.2f})" if of else ""
        )


def interval_of(comparison: Comparison | None) -> Interval | None:
    """The interval that decides; None: not compared, because one was not measured, or in too few rounds."""
    return comparison.interval if comparison else None


@dataclass(frozen=True)
class Estimate:
    """The natural logarithm of images/s or of a ratio, and how well it is known."""

    log: float
    variance: Variance | None
    """None: too few rounds, or no rounds that connect the arms."""
    floor: float = 0.0
    """Standard deviation of the logarithm beside that variance, known."""

    def interval(self, error: float) -> Interval | None:
        """The interval of the images/s or the ratio; None without a variance, or if it is too wide to say anything."""
        half = self.half(error)
        return Interval(math.exp(self.log - half), math.exp(self.log + half), 1 - error) if half < _WIDEST else None

    def half_width(self, error: float = ERROR) -> float:
        """Half of the ratio's interval, as a share of the ratio; infinite without an interval."""
        interval = self.interval(error)
        return math.sqrt(interval.high / interval.low) - 1 if interval else math.inf

    @property
    def p_value(self) -> float | None:
        """The error at which the interval just excludes 1; None without a variance."""
        from scipy.optimize import brentq

        if self.variance is None:
            return None
        least = math.log(_LEAST_ERROR)
        size = abs(self.log)
        if self.half(_LEAST_ERROR) <= size:
            return _LEAST_ERROR
        if not size:
            return 1.0
        return math.exp(brentq(lambda error: self.half(math.exp(error)) - size, least, 0.0))

    def half(self, error: float) -> float:
        """Half of the interval of the logarithm, infinite without a variance.

        The floor is added in quadrature, whatever its degrees of freedom.
        """
        from scipy.special import ndtri, stdtrit  # slow to import, and not needed by a launch

        if self.variance is None:
            return math.inf
        sure = float(stdtrit(self.variance.df, 1 - error / 2)) * math.sqrt(self.variance.value)
        return math.hypot(sure, float(ndtri(1 - error / 2)) * self.floor)


@dataclass(frozen=True)
class OddStart:
    """A start of an arm that differs from its others."""

    arm: str
    block: Block
    """Block of its turns; its `round` has no meaning here."""
    change: float
    """0.1: 10 % faster than the arm's other starts, beside the same arms."""


Pair = tuple[str, str]
"""An arm and its baseline."""


@dataclass(frozen=True)
class Statistics:
    """All figures of one bench."""

    rounds: Mapping[str, Mapping[Block, float]]
    """The images/s of each arm's turns, all positive."""
    floor: float = FLOOR
    """Standard deviation of a ratio beyond what this bench shows: that of pairs of equal arms (A/A) in earlier ones."""
    least: Mapping[str, float] = field(default_factory=dict)
    """Arm -> smaller differences, as a share, have no verdict: those that equal arms of its bench may have."""
    family: tuple[Pair, ...] = ()
    """All comparisons that a reader sees, which share the error rate; empty: those of each call of `compare`."""
    error: float = ERROR
    """The share of benches in which some of several equal arms may be called different."""

    def figure(self, arm: str) -> Figure | None:
        """None without a turn. Figures of connected arms are of the same rounds: the model fills a missing one."""
        if not self.rounds[arm]:
            return None
        estimate = self.estimate(arm)
        return Figure(math.exp(estimate.log), estimate.interval(ERROR), len(self.rounds[arm]))

    def compare(self, pairs: Sequence[Pair]) -> tuple[Comparison, ...]:
        """Each arm with its baseline, both with turns.

        Holm (1979): the comparison with the most evidence is made at level 1 - error / n, the next one at
        1 - error / (n - 1), until one cannot tell; the others keep its level. The interval has that level too. So
        equal arms are called different in at most `error` of all benches, and no interval misses in more.
        """
        errors = self._errors if self.family else self._holm(pairs)
        number = len(errors)
        strictest = self.error / max(number, 1)
        found = []
        for arm, baseline in pairs:
            ratio = math.exp(self.log(arm)) / math.exp(self.log(baseline))
            interval = self.ratio(arm, baseline).interval(errors.get(_unordered(arm, baseline), strictest))
            rounds = min(len(self.rounds[arm]), len(self.rounds[baseline]))
            found.append(Comparison(ratio, interval, rounds, number, self.least_of(arm, baseline)))
        return tuple(found)

    @cached_property
    def _errors(self) -> Mapping[Pair, float]:
        return self._holm(self.family)

    def _holm(self, pairs: Sequence[Pair]) -> Mapping[Pair, float]:
        """The error of each comparison that can be made, in both directions."""
        estimates = {_unordered(*pair): self.ratio(*pair) for pair in pairs}
        known = {pair: each.p_value for pair, each in estimates.items() if each.variance is not None}
        return dict(zip(known, holm(list(known.values()), self.error), strict=True))

    def ratio(self, arm: str, baseline: str) -> Estimate:
        """One arm over another, both with turns, for calculations with several benches."""
        noise, row = self._noise_of[arm]
        other_noise, other_row = self._noise_of[baseline]
        few = min(self._shared(arm), self._shared(baseline)) < FEWEST_ROUNDS
        known = noise is other_noise and row != other_row and not few
        variance = noise.of_ratio(row, other_row) if known else None
        return Estimate(self.log(arm) - self.log(baseline), variance, self.floor)

    def estimate(self, arm: str) -> Estimate:
        """The images/s of an arm with turns, given the rounds as they were, for calculations with several benches."""
        noise, row = self._noise_of[arm]
        enough = len(self.rounds[arm]) >= FEWEST_ROUNDS
        return Estimate(self.log(arm), noise.of_figure(row) if enough else None)

    def odd_starts(self) -> Iterator[OddStart]:
        """The starts that differ from the others of their arm for sure, the most different first.

        Each is left out before the next is looked for: it also moves those beside it.
        """
        for noise in self._noises:
            left: Noise | None = noise
            while left is not None:
                turn, change, error, left = left.most_different()
                if abs(change) <= max(math.log1p(_ODD), _ODD_ERRORS * error):
                    break
                yield OddStart(turn.arm, turn.block, math.expm1(change))

    @cached_property
    def _noises(self) -> tuple[Noise, ...]:
        return noise_of({arm: {b: math.log(rate) for b, rate in turns.items()} for arm, turns in self.rounds.items()})

    @cached_property
    def _noise_of(self) -> Mapping[str, tuple[Noise, int]]:
        """Noise of the arms that each arm with a turn is connected with, and its index among them."""
        return {arm: (noise, row) for noise in self._noises for row, arm in enumerate(noise.design.arms)}

    def log(self, arm: str) -> float:
        """The natural logarithm of the figure of an arm with turns."""
        noise, row = self._noise_of[arm]
        return float(noise.figures[row])

    def least_of(self, arm: str, baseline: str) -> float:
        """`Comparison.least` of two arms with turns."""
        starts = min(noise.starts[row] for noise, row in (self._noise_of[arm], self._noise_of[baseline]))
        return max(self.least.get(arm, 0.0), LEAST_OF_FEW_STARTS if starts < FEWEST_STARTS else 0.0)

    def _shared(self, arm: str) -> int:
        """The number of its turns beside which another arm was measured: only these compare it."""
        return sum(self._arms_in[block] > 1 for block in self.rounds[arm])

    @cached_property
    def _arms_in(self) -> Counter[Block]:
        return Counter(block for turns in self.rounds.values() for block in turns)


def _unordered(arm: str, baseline: str) -> Pair:
    return (arm, baseline) if arm < baseline else (baseline, arm)


def holm(p_values: Sequence[float | None], error: float) -> list[float]:
    """The error at which each comparison is made, of `error` in all; `error` where there is none."""
    errors = [error] * len(p_values)
    left = sum(p is not None for p in p_values)
    for p, index in sorted((p, index) for index, p in enumerate(p_values) if p is not None):
        errors[index] = error / left
        if p < errors[index]:
            left -= 1
    return errors
