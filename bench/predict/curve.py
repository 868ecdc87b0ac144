"""Images/s on any number of devices, with intervals (growth.py), and until which number devices pay. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfdist.bench.growth import Array, Parts, quantiles
from tfdist.bench.predict.compute import Compute
from tfdist.bench.predict.ring import RingFit, RingLink
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import ERROR, Interval

RANGE = 8
"""A prediction for more than this many times the devices, or this many times more or less bandwidth, than were
measured is an extrapolation."""


@dataclass(frozen=True)
class Draws:
    """The same calculation with different parameters; the first row has the best estimates."""

    grid: Array
    """Numbers of devices, from 1."""
    rates: Array
    """Images/s: draws x grid."""
    parts: Parts
    batch: float
    """Examples of a device in a step."""


@dataclass(frozen=True)
class PredictedPoint:
    """The prediction for one number of devices."""

    devices: int
    images_per_s: float
    interval: Interval
    efficiency: float
    """Throughput over that of one device on each of them."""
    efficiency_interval: Interval
    parts_ms: tuple[float, ...]
    """Compute, waiting, exchange, rest of a step."""
    extrapolated: bool


@dataclass(frozen=True)
class ScalingCurve:
    """The predictions for arms that differ in the number of devices only."""

    arms: tuple[ArmRow, ...]
    """Ascending order of devices."""
    compute: Compute
    points: tuple[PredictedPoint, ...]
    pays_until: int | None
    """The most devices of which each adds `worth` of what one device alone does; None: more than were requested."""
    pays_interval: tuple[int, int | None]
    gradient_bytes: int
    link: RingLink | None
    """The link that it is predicted for; None: the one that was measured."""
    fit: RingFit | None = None
    """Fit of its exchange; None: an asynchronous arm."""
    service: float | None = None
    """Images/s that the parameter servers can serve; None: a synchronous arm, or nothing waited for them."""

    @property
    def arm(self) -> ArmRow:
        """The arm with the most devices, after which the curve is named."""
        return self.arms[-1]

    @property
    def measured(self) -> tuple[int, ...]:
        """Measured numbers of devices, in ascending order."""
        return tuple(dict.fromkeys(row.devices or 1 for row in self.arms))


@dataclass(frozen=True)
class Question:
    """What to predict for one arm."""

    devices: tuple[int, ...]
    worth: float
    """The share of one device's images/s that an added device must bring to pay."""
    gradient_bytes: int
    """Bytes of the arm's gradients in float32."""
    link: RingLink | None
    """None: the one that was measured."""


def grid_of(devices: Sequence[int]) -> Array:
    """The requested numbers, those one above, and others between, to find where devices no longer pay."""
    most = max(devices)
    between = np.unique(np.geomspace(1, most, 40).round())
    return np.array(sorted({1.0, *devices, *between, *(number + 1 for number in (*devices, *between))}))


def is_far(measured: RingLink, other: RingLink | None) -> bool:
    """Whether a prediction for another link is an extrapolation."""
    if other is None or not (measured.bytes_per_s and other.bytes_per_s):
        return False
    ratio = other.bytes_per_s / measured.bytes_per_s
    return not 1 / RANGE <= ratio <= RANGE


def curve_of(arms: Sequence[ArmRow], compute: Compute, question: Question, draws: Draws, most: int) -> ScalingCurve:
    """`most`: the number of devices beyond which it is an extrapolation."""
    grid = draws.grid
    rates = draws.rates
    end = max(question.devices)
    until = [_pays_until(grid, each, question.worth) for each in rates]
    low, high = (int(value) for value in np.quantile(until, [ERROR / 2, 1 - ERROR / 2], method="nearest"))
    pays_until = until[0] if until[0] < end else None
    interval = (min(low, end), high if high < end else None)
    points = tuple(_point(draws, number, number > most) for number in question.devices)
    return ScalingCurve(tuple(arms), compute, points, pays_until, interval, question.gradient_bytes, question.link)


def _point(draws: Draws, number: int, extrapolated: bool) -> PredictedPoint:
    at = int((draws.grid < number).sum())
    parts = draws.parts
    rate = draws.rates[:, at]
    share = rate * parts.compute[:, 0] / (number * draws.batch)
    ms = tuple(float(1e3 * part[0, at]) for part in (parts.compute, parts.waiting, parts.exchange, parts.rest))
    return PredictedPoint(number, float(rate[0]), quantiles(rate), float(share[0]), quantiles(share), ms, extrapolated)


def _pays_until(grid: Array, rates: Array, worth: float) -> int:
    """The last number of devices before the first step to the next one that adds too little."""
    gains = np.diff(rates) / np.diff(grid) / (rates[0] / grid[0])
    too_little = np.flatnonzero(gains < worth)
    return int(grid[too_little[0]] if len(too_little) else grid[-1])
