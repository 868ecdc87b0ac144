"""The folder of a bench and a sweep of all-reduces -> predictions for its arms.

A step of a synchronous arm takes as long as its slowest device computes, then the exchange of the gradients, and the
rest that the measured arms take beside that, which grows with the devices. How long the slowest of n devices takes
follows from the order statistics of the measured spread.

Workers of parameter servers queue for the servers, as in a closed queueing network: a worker computes for a while, then
waits for its turn at each server. Exact mean value analysis (Reiser and Lavenberg 1980): a worker that arrives finds
the queue of a job with one worker less. The service time is that with which the measured arm makes its steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from tfdist.bench.collectives.results import Sweep, read_collectives
from tfdist.bench.growth import DRAWS, Array, Parts, error_of, widened, with_rest
from tfdist.bench.predict.compute import Compute, batch_of, compute_for, same_work
from tfdist.bench.predict.curve import RANGE, Draws, PredictedPoint, Question, ScalingCurve, curve_of, grid_of, is_far
from tfdist.bench.predict.ring import RingFit, RingLink, fit_ring, resolved, ring_lines
from tfdist.bench.reading import read_folder
from tfdist.bench.references import OPTIONS
from tfdist.bench.report.format import ends
from tfdist.bench.report.summary import ArmRow, summarize
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import counted, did_you_mean
from tfdist.models.architectures.parameters import trained_parameters
from tfdist.models.spec import Architecture
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import Communication

_HALVINGS = 60


def steps_per_s(workers: int, compute_s: Array, service_s: Array, servers: int) -> Array:
    """Steps/s of all workers together, for 1 to `workers` of them (rows); columns: cases.

    `service_s`: of all servers together for one step, spread evenly. At most `servers / service_s` steps/s are served.
    """
    share = service_s / servers
    queue = np.zeros_like(compute_s)
    rates = np.empty((workers, len(compute_s)))
    for number in range(1, workers + 1):
        at_server = share * (1 + queue)
        rates[number - 1] = number / (compute_s + servers * at_server)
        queue = rates[number - 1] * at_server
    return rates


def service_s(measured_steps_per_s: Array, workers: int, compute_s: Array, servers: int) -> Array:
    """The service times with which `workers` make these steps/s; 0 where computing alone takes longer.

    By bisection: more service is fewer steps.
    """
    low = np.zeros_like(compute_s)
    high = workers / measured_steps_per_s
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        faster = steps_per_s(workers, compute_s, middle, servers)[-1] > measured_steps_per_s
        low, high = np.where(faster, middle, low), np.where(faster, high, middle)
    found: Array = np.where(low > 1e-12, low, 0.0)
    return found


def predict_async(row: ArmRow, compute: Compute, question: Question) -> ScalingCurve:
    """The curve of a parameter-server arm: as many servers as measured."""
    grid = grid_of(question.devices)
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((DRAWS, len(compute.times)))
    noise = error_of(row.spread) * rng.standard_normal(DRAWS)
    of_model = rng.standard_normal(DRAWS)
    drawn[0], noise[0], of_model[0] = 0, 0, 0
    spec = row.measured[0].spec
    batch = batch_of(row)
    devices = row.devices or 1
    workers = int(spec["workers"])
    servers = max(1, int(spec["ps"]))
    of_worker = devices // workers
    measured = RingLink.of(row.link)
    before, after = (_on_wire(link, question.gradient_bytes) for link in (measured, question.link or measured))
    alone = compute.seconds(np.array([float(devices)]), drawn)[:, 0]
    steps = row.rate / (batch * of_worker) * np.exp(noise)
    moved = np.clip(workers / steps - alone, 0.0, before[1])  # transfers that do not overlap with computing
    service = np.maximum(service_s(steps, workers, alone + moved, servers) - before[0], 0.0) + after[0]
    seconds = compute.seconds(grid, drawn)
    own = seconds + np.maximum(moved + after[1] - before[1], 0.0)[:, None]
    numbers = -(-grid.astype(int) // of_worker)  # of workers
    rates = _steps(own, service, numbers, servers) * batch * grid / numbers
    total = grid * batch / rates
    parts = Parts(seconds, np.maximum(total - seconds, 0.0), np.zeros_like(total), np.zeros_like(total))
    served = servers / float(service[0]) * batch * of_worker if service[0] > 0 else None
    most = 0 if is_far(measured, question.link) else RANGE * devices
    rates = widened(rates, grid, [devices], of_model)
    curve = curve_of([row], compute, question, Draws(grid, rates, parts, batch), most)
    return replace(curve, service=served)


def _steps(own: Array, service: Array, workers: Array, servers: int) -> Array:
    """Steps/s: draws x numbers of workers. Columns with the same compute time are one calculation."""
    found = np.empty_like(own)
    begins = np.flatnonzero(np.r_[True, (np.diff(own, axis=1) != 0).any(axis=0)])
    for begin, end in zip(begins, [*begins[1:], own.shape[1]], strict=True):
        rows = steps_per_s(int(workers[end - 1]), own[:, begin], service, servers)
        found[:, begin:end] = rows[workers[begin:end] - 1].T
    return found


def _on_wire(link: RingLink, size: int) -> tuple[float, float]:
    """Seconds that a step's transfers occupy a server's link one way, and that they add to a worker's own time.

    A worker pulls the variables and pushes gradients of the same size; each is a request and an answer.
    """
    once = size * link.seconds_per_byte
    return once, 2 * once + 4 * link.latency_s


_REACH, _POINTS = 9.0, 721
"""The normal distribution is integrated to this many standard deviations, on a grid."""


def slowest_over_mean(devices: Array, spreads: Array) -> Array:
    """The mean time of the slowest of n devices over the mean time of one: spreads x devices.

    Times are log-normal and independent; `spreads` are the standard deviations of their logarithms. The largest of n
    has the density n Phi(z)^(n-1) phi(z) (David and Nagaraja, Order Statistics, 2003, section 2.1). For normal times,
    the slowest of 2 is later by 0.564 standard deviations, the slowest of 100 by 2.508.
    """
    from scipy.stats import norm

    edges = np.linspace(-_REACH, _REACH, _POINTS + 1)
    shares = np.diff(np.exp(np.outer(devices, norm.logcdf(edges))), axis=1)  # devices x points
    middles = (edges[1:] + edges[:-1]) / 2
    times = np.exp(np.outer(spreads, middles) - (spreads**2 / 2)[:, None])  # spreads x points, of mean 1
    found: Array = np.maximum(times @ shares.T, 1.0)
    found[:, devices <= 1] = 1.0
    return found


def predict_sync(rows: Sequence[ArmRow], compute: Compute, fit: RingFit, question: Question) -> ScalingCurve:
    """Synchronous arms that differ in the number of devices only; their processes exchange gradients by a ring."""
    grid = grid_of(question.devices)
    row = rows[-1]
    rng = np.random.default_rng(0)
    drawn = rng.standard_normal((DRAWS, len(compute.times)))
    spreads = compute.spread * np.sqrt(compute.df / rng.chisquare(compute.df, DRAWS))
    errors = rng.standard_normal((DRAWS, len(rows))) * [error_of(each.spread) for each in rows]
    of_model = rng.standard_normal(DRAWS)
    # the first draw is the best estimate
    drawn[0] = 0
    spreads[0] = compute.spread
    errors[0] = 0
    of_model[0] = 0
    rings = [fit.ring, *fit.draws[: DRAWS - 1]]
    size, operations = exchanged(row, question.gradient_bytes)

    def parts(devices: Array, link: RingLink | None) -> Parts:
        seconds = compute.seconds(devices, drawn)
        used = rings if link is None else [ring.over(fit.link, link) for ring in rings]
        exchange = np.array([ring.seconds(devices, size, operations) for ring in used])
        return Parts(seconds, seconds * (slowest_over_mean(devices, spreads) - 1), exchange, np.zeros_like(seconds))

    devices = [each.devices or 1 for each in rows]
    batch = batch_of(row)
    steps = np.array([batch_of(each) * (each.devices or 1) / each.rate for each in rows])
    known = [parts(np.array([float(n)]), RingLink.of(each.link)).total for n, each in zip(devices, rows, strict=True)]
    rests = steps * np.exp(errors) - np.hstack(known)
    predicted = with_rest(parts(grid, question.link), grid, devices, rests)
    rates = widened(grid * batch / predicted.total, grid, devices, of_model)
    most = 0 if is_far(fit.link, question.link) else RANGE * max(*fit.ranks, *devices)
    curve = curve_of(rows, compute, question, Draws(grid, rates, predicted, batch), most)
    return replace(curve, fit=fit)


def exchanged(row: ArmRow, gradient_bytes: int) -> tuple[float, int]:
    """Bytes that an arm exchanges in a step, and in how many operations."""
    spec = row.measured[0].spec
    size = gradient_bytes * (1.0 if str(spec.get("gradient_dtype", "float32")) == "float32" else 0.5)
    pack = spec.get("bytes_per_pack")
    return size, max(1, -(-int(size) // int(pack))) if pack else 1


FORMAT = 1
"""Format of the JSON."""
_PREDICTED = tuple(
    name
    for name, row in CATALOG.items()
    if row.all_reduce == "communication" or (row.exchange is Exchange.ASYNC and not row.graph)
)
"""The strategies between hosts whose exchange has a model here."""
_FLOAT32 = 4
_EXCHANGE = ("devices", "ema", *(name for name in OPTIONS if name != "step_times"))
"""Fields of a spec that define how long a step of a process takes, besides the work: what it exchanges, and how."""


@dataclass(frozen=True)
class PredictionOptions:
    """The options of a prediction."""

    devices: tuple[int, ...]
    bandwidth: float | None = None
    """Bytes/s of a TCP stream between two hosts; None: as measured."""
    latency_s: float | None = None
    """One way; None: as measured."""
    worth: float = 0.5
    """See `Question`."""
    gradient_bytes: int | None = None
    """None: those of the built-in model."""
    arms: tuple[str, ...] = ()
    """Patterns (fnmatch); none: all that can be predicted."""


@dataclass(frozen=True)
class Prediction:
    """The curves of all predicted arms of a bench."""

    bench: str
    curves: tuple[ScalingCurve, ...]
    options: PredictionOptions
    commands: tuple[str, ...]
    skipped: tuple[str, ...]
    """Records that could not be read, with the reason."""

    @property
    def fits(self) -> tuple[tuple[RingFit, int], ...]:
        """Fits of the exchange of its arms, with the bytes of the gradients; each once."""
        return tuple(dict.fromkeys((curve.fit, curve.gradient_bytes) for curve in self.curves if curve.fit))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": FORMAT, "bench": self.bench, "curves": [_curve_to_json(curve) for curve in self.curves]}


def predict(bench: Path, collectives: Path | None, options: PredictionOptions) -> Prediction:
    """What the arms of a bench would do on other numbers of devices, and over another link.

    Args:
        collectives: the folder of a sweep between the same processes; required by synchronous arms.

    Raises:
        TfdistError: nothing that can be predicted, a missing sweep, an unknown size of the gradients, or
            several hosts are requested and none of the measurements was over two.
    """
    folder = read_folder(bench, bench.resolve().name)
    rows = summarize([folder])
    chosen = _chosen(rows, options.arms)
    sweep = None if collectives is None else read_collectives(collectives)
    sync = [row for row in chosen if _all_reduces(row)]
    if sync and sweep is None:
        raise TfdistError(
            f"{sync[0].arm} exchanges gradients by all-reduce: name the folder of a 'tfdist collectives' with "
            f"--collectives, or predict others with --arm"
        )
    commands = [folder.bench.command] if folder.bench else []
    if sweep:
        commands.append(sweep.header.command)
    curves = tuple(_curves(chosen, rows, sweep, options))
    return Prediction(folder.label, curves, options, tuple(commands), folder.skipped)


def _curves(
    chosen: Sequence[ArmRow], rows: Sequence[ArmRow], sweep: Sweep | None, options: PredictionOptions
) -> Iterator[ScalingCurve]:
    fits: dict[tuple[Communication, int], RingFit] = {}
    for row in chosen:
        alike = _sizes(row, chosen)
        if row is not alike[-1]:
            continue
        compute = compute_for(row, rows)
        size = options.gradient_bytes or _gradient_bytes(row)
        question = Question(options.devices, options.worth, size, _link(row, sweep, options))
        if not _all_reduces(row) or sweep is None:
            yield predict_async(row, compute, question)
            continue
        spec = row.measured[0].spec
        by = Communication(spec.get("communication", Communication.AUTO))
        gpus = bool(spec.get("gpus"))
        by = resolved(by, gpus)
        if (by, size) not in fits:
            fits[by, size] = fit_ring(ring_lines(sweep, by, gpus), RingLink.of(sweep.header.link), size, DRAWS)
        yield predict_sync(alike, compute, fits[by, size], question)


def _all_reduces(row: ArmRow) -> bool:
    """Whether its processes all-reduce gradients; False: they exchange them through parameter servers."""
    return CATALOG[row.strategy].all_reduce == "communication"


def _sizes(row: ArmRow, rows: Sequence[ArmRow]) -> list[ArmRow]:
    """The arms that differ from a synchronous one in the number of processes only, itself included, by devices.

    Those on one device exchange nothing, and do not show how the rest grows.
    """

    def exchange(each: ArmRow) -> tuple[Any, ...]:
        return each.strategy, each.hosts > 1, *(each.measured[0].spec.get(key) for key in _EXCHANGE)

    if not _all_reduces(row):
        return [row]
    several = [each for each in rows if (each.devices or 1) > 1 or each is row]
    alike = [each for each in several if exchange(each) == exchange(row) and same_work(row, each)]
    return sorted(alike, key=lambda each: each.devices or 1)


def _chosen(rows: Sequence[ArmRow], patterns: Sequence[str]) -> list[ArmRow]:
    able = [row for row in rows if row.measured and row.strategy in _PREDICTED and row.valid]
    if not able:
        raise TfdistError(
            f"no {' or '.join(_PREDICTED)} arm was measured in this bench: other strategies stay on one host; "
            "run 'tfdist bench --suite cpu' or '--suite hosts'"
        )
    chosen = [row for row in able if not patterns or any(fnmatchcase(row.arm, each) for each in patterns)]
    if not chosen:
        names = [row.arm for row in able]
        raise TfdistError(f"--arm {', '.join(patterns)}: cannot be predicted; {did_you_mean(patterns[0], names)}")
    return chosen


def _gradient_bytes(row: ArmRow) -> int:
    spec = row.measured[0].spec
    if not spec.get("command"):
        return _FLOAT32 * trained_parameters(Architecture(spec["model"]), spec["alpha"], spec["classes"])
    raise TfdistError(f"{row.arm} runs a program of its own: give the size of its gradients, as --gradient-bytes 14M")


def _link(row: ArmRow, sweep: Sweep | None, options: PredictionOptions) -> RingLink | None:
    """The measured link with the requested bandwidth and latency; None: the one that the arm was measured over.

    Raises:
        TfdistError: a host boundary that no measurement crossed, or a link between hosts that is not known.
    """
    by_sweep = _all_reduces(row) or not row.link
    measured = RingLink.of(sweep.header.link if sweep and by_sweep else row.link)
    as_measured = options.bandwidth is None and options.latency_s is None
    if row.hosts == 1 and (sweep is None or len(set(sweep.header.hosts)) == 1):
        record = row.measured[0]
        most = max(row.devices or 1, len(record.hardware.get("gpus", ())) if record.spec.get("gpus") else 0)
        if not as_measured or max(options.devices) > most:
            raise TfdistError(
                f"{row.arm} was measured on one host, and without --collectives over two hosts nothing is known of the "
                f"links between them: give those, bench the arm with 'tfdist bench --hosts h1,h2 --suite hosts', or "
                f"predict at most {counted(most, 'device')}, without --bandwidth and --latency"
            )
        return None
    if sweep and by_sweep and not measured.bytes_per_s and None in (options.bandwidth, options.latency_s):
        raise TfdistError(
            "the sweep ran on one host, so nothing is known of the links between hosts: give --bandwidth, as 10Gbit, "
            "and --latency, as 50us, or the --collectives of several hosts"
        )
    if as_measured and (row.hosts > 1 or _all_reduces(row)):
        return None
    given = {"bytes_per_s": options.bandwidth, "latency_s": options.latency_s}
    return replace(measured, **{name: value for name, value in given.items() if value is not None})


def _curve_to_json(curve: ScalingCurve) -> dict[str, Any]:
    fit, ring = curve.fit, None
    if fit:
        ring = {**vars(fit.ring), "relative_error": fit.error, "ranks": list(fit.ranks), "sizes": list(fit.sizes)}
        ring["link"] = vars(fit.link)
    return {
        "arm": curve.arm.arm,
        "pays_until": curve.pays_until,
        "pays_until_low": curve.pays_interval[0],
        "pays_until_high": curve.pays_interval[1],
        "served_images_per_s": curve.service,
        "gradient_bytes": curve.gradient_bytes,
        "link": vars(curve.link) if curve.link else None,
        "measured_devices": list(curve.measured),
        "ring": ring,
        "spread": curve.compute.spread,
        "points": [values_of(curve, point) for point in curve.points],
    }


def values_of(curve: ScalingCurve, point: PredictedPoint) -> dict[str, Any]:
    """One row of prediction.csv."""
    names = ("compute_ms", "waiting_ms", "exchange_ms", "rest_ms")
    return {
        "arm": curve.arm.arm,
        "devices": point.devices,
        "images_per_s": point.images_per_s,
        **ends("images_per_s", point.interval),
        "efficiency": point.efficiency,
        **ends("efficiency", point.efficiency_interval),
        **dict(zip(names, point.parts_ms, strict=True)),
        "extrapolated": point.extrapolated,
    }
