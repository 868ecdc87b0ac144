"""How the time of a step grows with the number of devices, as far as a fit tells, and how sure that is. Pure.

The intervals are quantiles of the same calculation with parameters that are drawn from what the measurements leave
open.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tfdist.bench.statistics import ERROR, Interval

Array = NDArray[np.float64]

DRAWS = 400
ASSUMED_GROWTH = 0.05
"""Growth of a step for each doubling of the devices beyond a single measured number: published scaling is about this
much worse than a constant rest predicts (bench_results/prediction/published.md)."""
WIDENING = 0.08
"""Standard deviation of the logarithm of images/s for each doubling of the devices beyond the measured ones."""


@dataclass(frozen=True)
class Parts:
    """Seconds of a step on some number of devices; rows: draws, columns: devices."""

    compute: Array
    waiting: Array
    exchange: Array
    rest: Array
    """The rest of the strategy. Asynchronous workers: 0, their waiting is for the parameter servers."""

    @property
    def total(self) -> Array:
        """Seconds of a step of all devices."""
        return self.compute + self.waiting + self.exchange + self.rest


def with_rest(parts: Parts, devices: Array, measured: Sequence[int], rests: Array) -> Parts:
    """The parts of a step with what the measured arms take beside them, on other numbers of devices.

    The rest is a + b log2(n) with b >= 0, fitted by least squares. Of a single measured number of devices it is
    constant up to that number; beyond it the step grows by ASSUMED_GROWTH for each doubling. Overlap hides no more than
    there is to wait and to exchange. One device has no rest.

    Args:
        parts: draws x devices; their rest is not read.
        measured: numbers of devices.
        rests: seconds, draws x measured.
    """
    logs = np.log2(np.array(measured, dtype=float))
    away = logs - logs.mean()
    slopes = np.maximum(rests @ away, 0.0) / max(float(away @ away), 1e-12)
    rest = rests.mean(axis=1)[:, None] + slopes[:, None] * (np.log2(devices) - logs.mean())
    rest = np.maximum(rest, -parts.exchange - parts.waiting)
    if len(set(measured)) == 1:
        step = parts.compute + parts.waiting + parts.exchange + rest
        rest = rest + ASSUMED_GROWTH * _doublings(devices, measured) * step
    return replace(parts, rest=np.where(devices > 1, rest, 0.0))


def widened(rates: Array, devices: Array, measured: Sequence[int], drawn: Array) -> Array:
    """Images/s, draws x devices, with the error of the model itself; `drawn`: a standard normal number per draw."""
    found: Array = rates * np.exp(WIDENING * _doublings(devices, measured) * drawn[:, None])
    return found


def _doublings(devices: Array, measured: Sequence[int]) -> Array:
    """How many times the largest measured number of devices was doubled; 0 up to it."""
    found: Array = np.log2(np.maximum(devices / max(measured), 1.0))
    return found


def from_fewer(known: Mapping[int, tuple[float, float]], of_one: float, devices: int) -> tuple[float, Interval]:
    """Images/s on more devices than were measured, with the interval, by how the time of a step grows (`with_rest`).

    Args:
        known: devices -> images/s of the whole job, and `error_of` it; all with the same batch per device.
        of_one: images/s of one device alone.
        devices: more than any of the known numbers.
    """
    numbers = np.array([*known])
    rates, errors = np.array([*known.values()]).T
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((DRAWS, len(known))) * errors
    of_model = rng.standard_normal(DRAWS)
    noise[0], of_model[0] = 0, 0  # the first draw is the best estimate
    alone = np.full((DRAWS, 1), 1 / of_one)
    nothing = np.zeros((DRAWS, 1))
    grid = np.array([float(devices)])
    parts = Parts(alone, nothing, nothing, nothing)
    total = with_rest(parts, grid, list(known), np.exp(noise) * numbers / rates - alone).total
    found = widened(devices / total, grid, list(known), of_model)[:, 0]
    return float(found[0]), quantiles(found)


def error_of(spread: Interval | None) -> float:
    """Standard error of the logarithm of images/s, from its 95 % interval; 5 % without one."""
    return 0.05 if spread is None else math.log(spread.high / spread.low) / 2 / 1.96


def quantiles(values: Array) -> Interval:
    """The interval that holds 95 % of the draws."""
    low, high = np.quantile(values, [ERROR / 2, 1 - ERROR / 2])
    return Interval(float(low), float(high), 1 - ERROR)
