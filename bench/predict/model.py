"""Images/s of an arm on any number of devices, with intervals. Pure.

A synchronous step takes as long as its slowest device computes, then the exchange of the gradients, and what the
measured arm takes beside that. Workers of parameter servers queue for them. The intervals are quantiles of the same
calculation with parameters that are drawn from what the measurements leave open.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tfdist.bench.predict.compute import Compute, error_of
from tfdist.bench.predict.ring import Link, RingFit
from tfdist.bench.predict.server import service_s, steps_per_s
from tfdist.bench.predict.slowest import slowest_over_mean
from tfdist.bench.report.summary import ArmRow
from tfdist.bench.statistics import ERROR, Interval
from tfdist.launch.errors import TfdistError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

DRAWS = 400
RANGE = 8
"""A prediction for more than this many times the devices, or this many times more or less bandwidth, than were
measured is an extrapolation."""


@dataclass(frozen=True)
class Parts:
    """Seconds of a step on some number of devices; rows: draws, columns: devices."""

    compute: "Array"
    waiting: "Array"
    exchange: "Array"
    rest: "Array"
    """Of the strategy, as measured. For asynchronous workers: 0, their waiting is for the parameter servers."""

    @property
    def total(self) -> "Array":
        """Seconds of a step of all devices."""
        return self.compute + self.waiting + self.exchange + self.rest


@dataclass(frozen=True)
class Draws:
    """The same calculation with different parameters; the first row has the best estimates."""

    grid: "Array"
    """Numbers of devices, from 1."""
    rates: "Array"
    """Images/s: draws x grid."""
    parts: Parts
    batch: int
    """Examples of a device in a step."""


@dataclass(frozen=True)
class Point:
    """The prediction for one number of devices."""

    devices: int
    images_per_s: float
    interval: Interval
    efficiency: float
    """Over that of one device on each of them."""
    efficiency_interval: Interval
    parts_ms: tuple[float, float, float, float]
    """Compute, waiting, exchange, rest of a step."""
    extrapolated: bool


@dataclass(frozen=True)
class Curve:
    """The predictions for one arm."""

    arm: ArmRow
    compute: Compute
    points: tuple[Point, ...]
    pays_until: int | None
    """The most devices of which each adds `worth` of what one device alone does; None: more than were asked for."""
    pays_interval: tuple[int, int | None]
    fit: RingFit | None = None
    """Of its exchange; None: an asynchronous arm."""
    service: float | None = None
    """Images/s that the parameter servers can serve; None: a synchronous arm."""


@dataclass(frozen=True)
class Question:
    """What to predict."""

    devices: tuple[int, ...]
    worth: float
    """The share of one device's images/s that an added device must bring to pay."""
    gradient_bytes: int
    link: Link | None
    """None: the one that was measured."""


def predict_sync(row: ArmRow, compute: Compute, fit: RingFit, question: Question, seed: int = 0) -> Curve:
    """A synchronous arm whose processes exchange gradients by a ring."""
    import numpy as np

    grid = _grid(question.devices)
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((DRAWS, len(compute.times)))
    drawn[0] = 0  # the first draw is the best estimate
    spreads = compute.spread * np.sqrt(compute.df / rng.chisquare(compute.df, DRAWS))
    spreads[0] = compute.spread
    rings = [fit.ring, *fit.draws[: DRAWS - 1]]
    size, operations = exchanged(row, question.gradient_bytes)

    def parts(devices: "Array", link: Link | None) -> Parts:
        seconds = compute.seconds(devices, drawn)
        used = rings if link is None else [ring.over(fit.link, link) for ring in rings]
        exchange = np.array([ring.seconds(devices, size, operations) for ring in used])
        return Parts(seconds, seconds * (slowest_over_mean(devices, spreads) - 1), exchange, np.zeros_like(seconds))

    measured = parts(np.array([float(row.devices or 1)]), link_of_bench(row))
    errors = error_of(row) * rng.standard_normal((DRAWS, 1))
    errors[0] = 0
    rest = _step_s(row) * np.exp(errors) - measured.total
    predicted = parts(grid, question.link)
    floor = -predicted.exchange - predicted.waiting  # overlap hides no more than there is
    rest = np.where(grid > 1, np.maximum(rest, floor), 0.0)
    predicted = Parts(predicted.compute, predicted.waiting, predicted.exchange, rest)
    rates = grid * (row.batch_per_replica or 1) / predicted.total
    most = RANGE * max(*fit.ranks, row.devices or 1)
    if _link_is_far(fit.link, question.link):
        most = 0
    curve = _curve(row, compute, question, Draws(grid, rates, predicted, row.batch_per_replica or 1), most)
    return replace(curve, fit=fit)


def predict_async(row: ArmRow, compute: Compute, question: Question, seed: int = 0) -> Curve:
    """Asynchronous workers that queue for their parameter servers."""
    import numpy as np

    grid = _grid(question.devices)
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((DRAWS, len(compute.times)))
    noise = error_of(row) * rng.standard_normal(DRAWS)
    drawn[0], noise[0] = 0, 0
    batch, devices = row.batch_per_replica or 1, row.devices or 1
    spec = row.measured[0].spec
    workers, servers = int(spec["workers"]), max(1, int(spec["ps"]))
    of_worker = devices // workers
    seconds = compute.seconds(grid, drawn)
    measured_s = compute.seconds(np.array([float(devices)]), drawn)[:, 0]
    steps = (row.images_per_s or 0.0) / (batch * of_worker) * np.exp(noise)
    service = service_s(steps, workers, measured_s, servers)
    extra = question.gradient_bytes / question.link.bytes_per_s if question.link and question.link.bytes_per_s else 0.0
    latency = 4 * question.link.latency_s if question.link else 0.0  # a pull and a push, there and back
    rates = np.empty_like(seconds)
    for begin in {compute.at(int(number)) for number in grid}:
        columns = [index for index, number in enumerate(grid) if compute.at(int(number)) == begin]
        own = seconds[:, columns[0]] + 2 * extra + latency
        most = -(-int(grid[columns[-1]]) // of_worker)
        of_steps = steps_per_s(most, own, service + extra, servers)
        for index in columns:
            number_of_workers = -(-int(grid[index]) // of_worker)
            rates[:, index] = of_steps[number_of_workers - 1] * batch * grid[index] / number_of_workers
    total = grid * batch / rates
    parts = Parts(seconds, np.maximum(total - seconds, 0.0), np.zeros_like(total), np.zeros_like(total))
    served = servers / max(float(service[0]) + extra, 1e-12) * batch * of_worker
    return replace(_curve(row, compute, question, Draws(grid, rates, parts, batch), RANGE * devices), service=served)


def link_of_bench(row: ArmRow) -> Link:
    """The link that an arm was measured over; without a limit inside one host."""
    return Link(row.link["bytes_per_s"], row.link["rtt_s"] / 2) if row.link else Link()


def exchanged(row: ArmRow, gradient_bytes: int) -> tuple[float, int]:
    """Bytes that an arm exchanges in a step, and in how many operations."""
    spec = row.measured[0].spec
    size = gradient_bytes * (1.0 if str(spec.get("gradient_dtype", "float32")) == "float32" else 0.5)
    pack = spec.get("bytes_per_pack")
    return size, max(1, -(-int(size) // int(pack))) if pack else 1


def _step_s(row: ArmRow) -> float:
    if not (row.images_per_s and row.batch_global):
        raise TfdistError(f"{row.arm} has no batch size: a program of your own cannot be predicted")
    return row.batch_global / row.images_per_s


def _grid(devices: Sequence[int]) -> "Array":
    """The asked numbers, those one above, and others between, to find where devices no longer pay."""
    import numpy as np

    most = max(devices)
    between = np.unique(np.geomspace(1, most, 40).round())
    return np.array(sorted({1.0, *devices, *between, *(number + 1 for number in (*devices, *between))}))


def _link_is_far(measured: Link, other: Link | None) -> bool:
    if other is None or not (measured.bytes_per_s and other.bytes_per_s):
        return False
    ratio = other.bytes_per_s / measured.bytes_per_s
    return not 1 / RANGE <= ratio <= RANGE


def _curve(row: ArmRow, compute: Compute, question: Question, draws: Draws, most: int) -> Curve:
    """`most`: the number of devices beyond which it is an extrapolation."""
    import numpy as np

    grid, rates, end = draws.grid, draws.rates, max(question.devices)
    until = [_pays_until(grid, each, question.worth) for each in rates]
    low, high = (int(value) for value in np.quantile(until, [ERROR / 2, 1 - ERROR / 2], method="nearest"))
    return Curve(
        row,
        compute,
        tuple(_point(draws, number, number > most) for number in question.devices),
        until[0] if until[0] < end else None,
        (low, high if high < end else None),
    )


def _point(draws: Draws, number: int, extrapolated: bool) -> Point:
    at = int((draws.grid < number).sum())
    rates, of_one = draws.rates[:, at], draws.parts.compute[:, 0]
    efficiency = rates * of_one / (number * draws.batch)
    parts = draws.parts
    return Point(
        number,
        float(rates[0]),
        _quantiles(rates),
        float(efficiency[0]),
        _quantiles(efficiency),
        (
            float(1e3 * parts.compute[0, at]),
            float(1e3 * parts.waiting[0, at]),
            float(1e3 * parts.exchange[0, at]),
            float(1e3 * parts.rest[0, at]),
        ),
        extrapolated,
    )


def _pays_until(grid: "Array", rates: "Array", worth: float) -> int:
    """The last number of devices before the first step to the next one that adds too little."""
    import numpy as np

    gains = np.diff(rates) / np.diff(grid) / (rates[0] / grid[0])
    too_little = np.flatnonzero(gains < worth)
    return int(grid[too_little[0]] if len(too_little) else grid[-1])


def _quantiles(values: "Array") -> Interval:
    import numpy as np

    low, high = np.quantile(values, [ERROR / 2, 1 - ERROR / 2])
    return Interval(float(low), float(high), 1 - ERROR)
