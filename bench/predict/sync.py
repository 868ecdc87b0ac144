"""A synchronous arm on any number of devices. Pure.

A step takes as long as its slowest device computes, then the exchange of the gradients, and the rest that the measured
arm takes beside that. How long the slowest of n devices takes follows from the order statistics of the measured spread.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdist.bench.predict.compute import Compute, batch_of, error_of
from tfdist.bench.predict.curve import (
    DRAWS,
    RANGE,
    Draws,
    Parts,
    Question,
    ScalingCurve,
    curve_of,
    grid_of,
    is_far,
    link_of_bench,
)
from tfdist.bench.predict.ring import RingFit, RingLink
from tfdist.bench.report.summary import ArmRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_REACH, _POINTS = 9.0, 721
"""The normal distribution is integrated to this many standard deviations, on a grid."""


def slowest_over_mean(devices: "Array", spreads: "Array") -> "Array":
    """The mean time of the slowest of n devices over the mean time of one: spreads x devices.

    Times are log-normal and independent; `spreads` are the standard deviations of their logarithms. The largest of n
    has the density n Phi(z)^(n-1) phi(z) (David and Nagaraja, Order Statistics, 2003, section 2.1). For normal times,
    the slowest of 2 is later by 0.564 standard deviations, the slowest of 100 by 2.508.
    """
    import numpy as np
    from scipy.stats import norm

    edges = np.linspace(-_REACH, _REACH, _POINTS + 1)
    shares = np.diff(np.exp(np.outer(devices, norm.logcdf(edges))), axis=1)  # devices x points
    middles = (edges[1:] + edges[:-1]) / 2
    times = np.exp(np.outer(spreads, middles) - (spreads**2 / 2)[:, None])  # spreads x points, of mean 1
    found: Array = np.maximum(times @ shares.T, 1.0)
    found[:, devices <= 1] = 1.0
    return found


def predict_sync(row: ArmRow, compute: Compute, fit: RingFit, question: Question, seed: int = 0) -> ScalingCurve:
    """A synchronous arm whose processes exchange gradients by a ring."""
    import numpy as np

    grid = grid_of(question.devices)
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((DRAWS, len(compute.times)))
    drawn[0] = 0  # the first draw is the best estimate
    spreads = compute.spread * np.sqrt(compute.df / rng.chisquare(compute.df, DRAWS))
    spreads[0] = compute.spread
    rings = [fit.ring, *fit.draws[: DRAWS - 1]]
    size, operations = exchanged(row, question.gradient_bytes)

    def parts(devices: "Array", link: RingLink | None) -> Parts:
        seconds = compute.seconds(devices, drawn)
        used = rings if link is None else [ring.over(fit.link, link) for ring in rings]
        exchange = np.array([ring.seconds(devices, size, operations) for ring in used])
        return Parts(seconds, seconds * (slowest_over_mean(devices, spreads) - 1), exchange, np.zeros_like(seconds))

    measured = parts(np.array([float(row.devices or 1)]), link_of_bench(row))
    errors = error_of(row) * rng.standard_normal((DRAWS, 1))
    errors[0] = 0
    batch = batch_of(row)
    step_s = batch * (row.devices or 1) / (row.images_per_s or np.nan)
    rest = step_s * np.exp(errors) - measured.total
    predicted = parts(grid, question.link)
    floor = -predicted.exchange - predicted.waiting  # overlap hides no more than there is
    rest = np.where(grid > 1, np.maximum(rest, floor), 0.0)
    predicted = Parts(predicted.compute, predicted.waiting, predicted.exchange, rest)
    rates = grid * batch / predicted.total
    most = 0 if is_far(fit.link, question.link) else RANGE * max(*fit.ranks, row.devices or 1)
    curve = curve_of(row, compute, question, Draws(grid, rates, predicted, batch), most)
    return replace(curve, fit=fit)


def exchanged(row: ArmRow, gradient_bytes: int) -> tuple[float, int]:
    """Bytes that an arm exchanges in a step, and in how many operations."""
    spec = row.measured[0].spec
    size = gradient_bytes * (1.0 if str(spec.get("gradient_dtype", "float32")) == "float32" else 0.5)
    pack = spec.get("bytes_per_pack")
    return size, max(1, -(-int(size) // int(pack))) if pack else 1
