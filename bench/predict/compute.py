"""How long a device computes in a step, and how much that differs between devices and steps. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np

from tfdist.bench.growth import Array, error_of
from tfdist.bench.report.baseline import differences
from tfdist.bench.report.summary import ArmRow
from tfdist.launch.errors import TfdistError
from tfdist.models.record import Record
from tfdist.strategies.catalog import Exchange
from tfdist.strategies.options import StrategyName

_SAME_BATCH = 0.01
"""Relative difference of means below which they are of one batch: a user's program may have smaller last batches."""


@dataclass(frozen=True)
class StepTime:
    """The time in which each of n devices computes one step, without exchange."""

    devices: int
    seconds: float
    error: float
    """Standard error of its logarithm."""


@dataclass(frozen=True)
class Compute:
    """The compute part of a training."""

    times: tuple[StepTime, ...]
    """Times in ascending order of devices: one device, then trainings side by side, which share memory and caches."""
    spread: float
    """Standard deviation of the logarithm of a single step's time, between steps and devices."""
    df: float
    """Degrees of freedom of `spread`."""

    def at(self, devices: int) -> StepTime:
        """The measured one with the most devices that does not exceed `devices`."""
        return max((each for each in self.times if each.devices <= devices), key=lambda each: each.devices)

    def seconds(self, devices: Array, drawn: Array) -> Array:
        """Draws x devices; `drawn`: for each draw a standard normal number for each of `times`."""
        index = [self.times.index(self.at(int(number))) for number in devices]
        seconds = np.array([each.seconds for each in self.times])
        errors = np.array([each.error for each in self.times])
        found: Array = (seconds * np.exp(drawn * errors))[:, index]
        return found


def compute_for(row: ArmRow, rows: Sequence[ArmRow]) -> Compute:
    """The compute part of an arm, from the arms of the same work without exchange.

    Raises:
        TfdistError: there is no one-device arm of the same work.
    """
    alike = [each for each in rows if each.measured and each.valid and same_work(row, each)]
    singles = [each for each in alike if each.strategy == StrategyName.ONE_DEVICE]
    several = [each for each in alike if each.exchange is Exchange.NONE and (each.devices or 0) > 1]
    side_by_side = [each for each in several if _slow(each) == _slow(row)]
    many = [each for each in side_by_side if each.hosts == row.hosts] or side_by_side
    if not singles:
        fix = "measure one, as suite cpu does"
        raise TfdistError(f"{row.arm} has no one-device arm of the same work in its bench: {fix}")
    by_devices = {each.devices or 1: each for each in (*reversed(many), *reversed(singles))}
    spread, df = _spread([record for each in (many or singles) for record in each.measured])
    times = (
        StepTime(devices, devices * batch_of(each) / each.rate, error_of(each.spread))
        for devices, each in sorted(by_devices.items())
    )
    return Compute(tuple(times), spread, df)


def _slow(row: ArmRow) -> tuple[object, ...]:
    return tuple(row.measured[0].spec.get(key) for key in ("slow_worker", "slow_ms", "slow_factor"))


def same_work(row: ArmRow, other: ArmRow) -> bool:
    """Whether a device computes the same in a step of both arms, on the same kind of machine."""
    same_batch = math.isclose(batch_of(row), batch_of(other), rel_tol=_SAME_BATCH)
    return same_batch and not differences(row.measured[0], other.measured[0])


def batch_of(row: ArmRow) -> float:
    """Examples of a device in a step."""
    return row.batch_per_replica or math.nan


def _spread(records: Sequence[Record]) -> tuple[float, float]:
    """`Compute.spread` and its degrees of freedom, from the windows of each rank and the ranks of each turn.

    A window is the mean of its steps, which are taken for independent.
    """
    steps = 0.0
    ranks = []
    free = 0
    for record in records:
        means = []
        for rank in record.ranks:
            logs = [math.log(window.elapsed_s / window.steps) for window in rank.windows if window.steps]
            if len(logs) < 2:
                continue
            per_window = fmean(window.steps for window in rank.windows if window.steps)
            steps += per_window * variance(logs) * (len(logs) - 1)
            free += len(logs) - 1
            means.append((fmean(logs), per_window * len(logs)))
        if len(means) > 1:
            ranks.append((variance([mean for mean, _ in means]), fmean(count for _, count in means)))
    if not free:
        return 0.0, 1.0
    of_steps = steps / free
    of_ranks = fmean(max(0.0, each - of_steps / count) for each, count in ranks) if ranks else 0.0
    return math.sqrt(of_steps + of_ranks), float(free)
