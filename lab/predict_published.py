"""How wrong the model of `tfdist predict` is on published measurements: later columns of a table from its earlier ones.

python -m lab.predict_published    # writes bench_results/prediction/published.md

A published table has no sweep of all-reduces and no spread of steps. The exchange E of a ring, step = T1 + E 2(n-1)/n,
is that of the first number of devices over several hosts; what later numbers take beyond that is the rest.
"""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from tfdist.bench.collectives.results import read_collectives
from tfdist.bench.growth import ASSUMED_GROWTH, DRAWS, WIDENING, Parts, quantiles, widened, with_rest
from tfdist.bench.predict.prediction import steps_per_s
from tfdist.bench.predict.ring import Ring, RingLink, fit_ring, ring_lines
from tfdist.bench.report.markdown import markdown
from tfdist.bench.report.section import Page, Section
from tfdist.bench.statistics import Interval
from tfdist.bench.table import Column, Table
from tfdist.models.architectures.parameters import trained_parameters
from tfdist.models.spec import Architecture
from tfdist.strategies.options import Communication

RESULTS = Path(__file__).parents[1] / "bench_results"
PUBLISHED = RESULTS / "prediction" / "published.csv"
SWEEP = RESULTS / "collectives-2-hosts-1gbit"
# families that have a calculation of their own
RING = "MultiWorkerMirrored ring 1 Gbit/s"
ASYNC = "asynchronous parameter servers"
BATCH = 32
"""Those of each device, in the ring's family."""
RING_BYTES = 4 * trained_parameters(Architecture.MOBILENET_V2, alpha=1.0, classes=1000)
"""Gradients of its model, in float32."""
RING_LINK = RingLink(940e6 / 8)
"""Its network; iperf3 measured 933 to 947 Mbit/s."""
SERVERS = 16
"""Parameter servers of the asynchronous family."""
NULL_STEP_100MB_S = 0.147
"""A step of one of its workers that computes nothing. Inception-v3 has 95 MB of parameters."""


@dataclass(frozen=True)
class Series:
    """One published table: images/s of the whole job, of null steps steps/s."""

    family: str
    name: str
    source: str
    per_host: int
    rates: dict[int, float]

    def several_hosts(self, devices: int) -> bool:
        """Whether this number of devices is more than one host has."""
        return devices > self.per_host


@dataclass(frozen=True)
class HeldOut:
    """A published point and its prediction."""

    series: Series
    known: tuple[int, ...]
    """Numbers of devices that it was predicted from."""
    devices: int
    predicted: float
    interval: Interval
    constant: float | None = None
    """Predicted with a rest that does not grow."""
    refused: bool = False
    """Whether `tfdist predict` refuses it: it crosses a host boundary that no known point crosses."""
    published: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "published", self.series.rates[self.devices])

    @property
    def error(self) -> float:
        """Predicted over published, less 1; positive: optimistic."""
        return self.predicted / self.published - 1

    @property
    def inside(self) -> bool:
        """Whether the published figure is inside the interval."""
        return self.interval.low <= self.published <= self.interval.high

    @property
    def last(self) -> bool:
        """The last column, from all others."""
        return self.known == tuple(self.series.rates)[:-1]


def read_published(path: Path = PUBLISHED) -> list[Series]:
    """All tables, in the order of the file."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Series(family, name, rows[0]["source"], int(rows[0]["devices_per_host"]), dict(map(_rate, rows)))
        for (family, name), found in groupby(rows, key=lambda row: (row["family"], row["series"]))
        for rows in [list(found)]
    ]


def _rate(row: dict[str, str]) -> tuple[int, float]:
    devices = int(row["devices"])
    batch = BATCH if row["family"] == RING else 1
    return devices, float(row["images_per_s"] or devices * batch / float(row["step_s"]))


def hold_out(series: Series) -> Iterator[HeldOut]:
    """Each column from the columns before it; of tables with a calculation of their own the last one."""
    if series.family == RING:
        yield _ring_point(series, own_exchange_s())
    elif series.family == ASYNC:
        yield _async_point(series)
    else:
        numbers = tuple(series.rates)
        for count in range(2, len(numbers)):
            yield from (_point(series, numbers[:count], devices) for devices in numbers[count:])


def _point(series: Series, known: tuple[int, ...], devices: int) -> HeldOut:
    """The step per example: a batch is the same for every number of devices."""
    one_s = 1 / series.rates[1]
    over_hosts = [n for n in known if series.several_hosts(n)]
    measured = over_hosts or list(known[1:])
    steps = np.array([n / series.rates[n] for n in measured])
    first = measured[0]
    ring = Ring(0.0, 0.0, max(0.0, steps[0] - one_s) / (2 * (first - 1) / first))
    rests = steps - one_s - ring.seconds(np.array(measured), 1.0)
    predicted, interval = _predicted(one_s, float(ring.seconds(devices, 1.0)), measured, rests, devices)
    constant = devices / (one_s + float(ring.seconds(devices, 1.0)))
    refused = series.several_hosts(devices) and not over_hosts
    return HeldOut(series, known, devices, predicted, interval, constant, refused)


def _ring_point(series: Series, exchange_s: float) -> HeldOut:
    one_s = 1 / series.rates[1]
    predicted, interval = _predicted(one_s, exchange_s / BATCH, [1], np.zeros(1), 2)
    return HeldOut(series, (1,), 2, predicted, interval, 2 / (one_s + exchange_s / BATCH))


def _predicted(
    one_s: float, exchange_s: float, measured: Sequence[int], rests: np.ndarray, devices: int
) -> tuple[float, Interval]:
    grid = np.array([float(devices)])
    ones = np.ones((DRAWS, 1))
    parts = with_rest(Parts(one_s * ones, 0 * ones, exchange_s * ones, 0 * ones), grid, measured, ones * rests)
    return _with_interval(grid / parts.total, devices, measured)


def _with_interval(rates: np.ndarray, devices: int, measured: Sequence[int]) -> tuple[float, Interval]:
    """Published figures have no intervals: the one shown here is the widening alone."""
    drawn = np.r_[0.0, np.random.default_rng(0).standard_normal(DRAWS - 1)]
    found = widened(rates, np.array([float(devices)]), measured, drawn)[:, 0]
    return float(found[0]), quantiles(found)


def _async_point(series: Series) -> HeldOut:
    """A null step computes nothing: all of one worker's step is taken for service. Inception-v3: service of 100 MB."""
    (known, rate), (devices, _) = series.rates.items()
    if known == 1:
        compute_s = 0.0
        service_s = 1 / rate
        batch = 1
    else:
        service_s, batch = NULL_STEP_100MB_S, BATCH
        compute_s = float(brentq(lambda s: batch * _served(known, s, service_s) - rate, 1e-6, known * batch / rate))
    found = batch * _served(devices, compute_s, service_s)
    predicted, interval = _with_interval(np.full((DRAWS, 1), found), devices, [known])
    return HeldOut(series, (known,), devices, predicted, interval)


def _served(workers: int, compute_s: float, service_s: float) -> float:
    return float(steps_per_s(workers, np.array([compute_s]), np.array([service_s]), SERVERS)[-1, 0])


def own_exchange_s() -> float:
    """Seconds of the ring that fits this repository's sweep at 1 Gbit/s, over a link of the published bandwidth."""
    sweep = read_collectives(SWEEP)
    fit = fit_ring(ring_lines(sweep, Communication.RING, gpus=False), RingLink.of(sweep.header.link), RING_BYTES, 0)
    other = RingLink(RING_LINK.bytes_per_s, fit.link.latency_s)
    return float(fit.ring.over(fit.link, other).seconds(2, RING_BYTES))


def inside(points: Sequence[HeldOut]) -> str:
    """`15 of 16 (94%)`."""
    number = sum(point.inside for point in points)
    return f"{number} of {len(points)} ({number / len(points):.0%})"


def page(found: Sequence[HeldOut]) -> Page:
    """The report: families, points, one host for several, the ring, the queueing model."""
    shown = [point for point in found if not point.refused]
    last = [point for point in shown if point.last]
    sync, queued = ([point for point in last if (point.series.family == ASYNC) is value] for value in (False, True))
    headline = (
        f"Inside the interval that is shown: {inside(last)} of the last columns, predicted from all earlier ones: "
        f"{inside(sync)} synchronous, {inside(queued)} asynchronous."
    )
    return Page(
        "Predictions of published measurements",
        (headline,),
        (
            Section("families", "Errors by family", (_bias(sync),), tables=(_families(last),)),
            Section("points", "Last columns", (), tables=(_points(last),)),
            _all_points(found),
            _ring_section(next(point for point in last if point.series.family == RING)),
            _queue_section(queued),
        ),
        commands=("python -m lab.predict_published",),
        method=METHOD,
    )


def _bias(points: Sequence[HeldOut]) -> str:
    errors = [point.error for point in points]
    constant = [point.constant / point.published - 1 for point in points if point.constant]
    doubling = [math.log1p(point.error) / math.log2(point.devices / point.known[-1]) for point in points]
    return (
        f"Synchronous: a mean error of {fmean(errors):+.1%}, from {min(errors):+.1%} to {max(errors):+.1%}; "
        f"{sum(error > 0 for error in errors)} of {len(errors)} are optimistic (predicted more than published). With a "
        f"constant rest the mean error is {fmean(constant):+.1%}, and {sum(error > 0 for error in constant)} are "
        f"optimistic. The root mean square of the errors is {math.sqrt(fmean(each**2 for each in doubling)):.1%} for each "
        f"doubling: the intervals, with {WIDENING:.0%}, are wider than these points need."
    )


def _families(last: Sequence[HeldOut]) -> Table:
    points = [(point.series.family, point.error, point.inside) for point in last]
    groups = pd.DataFrame(points, columns=["family", "error", "inside"]).groupby("family", sort=False)
    bias, low, high = (("error", name) for name in ("mean", "min", "max"))
    data = groups.agg(points=("error", "size"), bias=bias, low=low, high=high, inside=("inside", "sum")).reset_index()
    columns = (
        Column("family", ("family",)),
        Column("points", ("points",)),
        Column("mean error", ("bias",), "{:+.1%}"),
        Column("errors", ("low", "high"), "{:+.1%} to {:+.1%}"),
        Column("inside", ("inside",)),
    )
    return Table("families", "Errors by family", data, columns)


def _points(points: Sequence[HeldOut]) -> Table:
    rows = [
        {
            "family": point.series.family,
            "series": point.series.name,
            "known": ", ".join(map(str, point.known)),
            "devices": point.devices,
            "published": point.published,
            "predicted": point.predicted,
            "low": point.interval.low,
            "high": point.interval.high,
            "error": point.error,
            "inside": point.inside,
        }
        for point in points
    ]
    columns = (
        Column("family", ("family",)),
        Column("series", ("series",)),
        Column("from devices", ("known",)),
        Column("devices", ("devices",)),
        Column("published", ("published",), _figure),
        Column("predicted", ("predicted",), _figure),
        Column("interval", ("low", "high"), lambda low, high: f"{_figure(low)} to {_figure(high)}"),
        Column("error", ("error",), "{:+.1%}"),
        Column("inside", ("inside",), lambda value: "yes" if value else "no"),
    )
    return Table("points", "Points", pd.DataFrame(rows), columns)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _all_points(found: Sequence[HeldOut]) -> Section:
    """Predictions from fewer columns than there are, and those that the command refuses."""
    shown, refused = ([point for point in found if point.refused is value] for value in (False, True))
    errors = [point.error for point in refused]
    return Section(
        "all",
        "Every later column from every earlier one",
        (
            f"Inside: {inside(shown)}. Points of one table are not independent.",
            f"Refused by the command, because no known column is over several hosts: {len(refused)} points. Their errors "
            f"would be {min(errors):+.0%} to {max(errors):+.0%}, with {inside(refused)} inside.",
        ),
    )


def _ring_section(point: HeldOut) -> Section:
    one_s, step_s = BATCH / point.series.rates[1], 2 * BATCH / point.published
    wire_s = float(Ring(0.0, 0.0, 1 / (RING_LINK.bytes_per_s or 1)).seconds(2, RING_BYTES))
    bare = _ring_point(point.series, wire_s)
    return Section(
        "ring",
        "The ring's formula: MobileNetV2 over 1 Gbit/s",
        (
            f"A step took {1e3 * step_s:.0f} ms and one worker alone {1e3 * one_s:.0f} ms, so the exchange took about "
            f"{1e3 * (step_s - one_s):.0f} ms. {RING_BYTES / 1e6:.2f} MB at the 940 Mbit/s of iperf3 take "
            f"{1e3 * wire_s:.0f} ms: the formula with a nominal bandwidth is a floor, and predicts {bare.predicted:.0f} "
            f"images/s ({bare.error:+.0%}; {'inside' if bare.inside else 'outside'}). The command requires a sweep of "
            f"all-reduces for that reason.",
            f"Fitted to this repository's sweep at 1 Gbit/s (`{SWEEP.name}`, another machine), the ring takes "
            f"{1e3 * own_exchange_s():.0f} ms, and the step {1e3 * 2 * BATCH / (point.constant or math.nan):.0f} ms; with "
            f"the growth of {ASSUMED_GROWTH:.0%} from one device to two the error is {point.error:+.1%}. That another machine's "
            f"processes need the same time for a byte is chance.",
        ),
    )


def _queue_section(points: Sequence[HeldOut]) -> Section:
    null = [point for point in points if point.known == (1,)]
    (trained,) = (point for point in points if point.known != (1,))
    rows = [
        {
            "series": point.series.name,
            "published": 1e3 * point.devices / point.published,
            "predicted": 1e3 * point.devices / point.predicted,
            "error": point.published / point.predicted - 1,
            "share": _service_share(point),
        }
        for point in null
    ]
    columns = (
        Column("series", ("series",)),
        Column("published (ms)", ("published",), "{:,.4g}"),
        Column("predicted (ms)", ("predicted",), "{:,.4g}"),
        Column("error of the step", ("error",), "{:+.0%}"),
        Column("service that explains it", ("share",), "{:.0%}"),
    )
    return Section(
        "queue",
        "The queueing model: asynchronous training, OSDI 2016",
        (
            f"Null steps of 100 workers and {SERVERS} parameter servers, from the step of one worker. With nothing else "
            "known all of that step counts as service that workers queue for, which is an upper limit: the last "
            "column is the share of it that would explain the published step.",
            f"Training Inception-v3: 25 workers at 500 images/s (read from the plot, batch {BATCH} assumed) and a service "
            f"of {1e3 * NULL_STEP_100MB_S:.0f} ms (one worker's null step of 100 MB) give "
            f"{trained.predicted:,.0f} images/s with 200 workers; about {trained.published:,.0f} were published "
            f"({trained.error:+.0%}). Null steps are predicted too slow, training too fast: the model has no contention "
            "beside the queue at the servers.",
            "These figures are read from a summary of the paper and from a plot. The intervals of 100 workers from one "
            "are a factor of 2.8 up and down: that they hold the published steps says little.",
        ),
        tables=(Table("null_steps", "Null steps", pd.DataFrame(rows), columns),),
    )


def _service_share(point: HeldOut) -> float:
    """Share of one worker's null step that, as service, explains the published step of all."""
    one_s = 1 / point.series.rates[1]
    return float(
        brentq(lambda share: _served(point.devices, one_s * (1 - share), one_s * share) - point.published, 1e-3, 1)
    )


METHOD = f"""\
- The figures are in `published.csv`. One device gives the compute time; the first number of devices over several hosts gives the exchange; later numbers give the growth of the rest, else a
  step grows by {ASSUMED_GROWTH:.0%} for each doubling. The code of that growth, of the ring and of the intervals is the command's.
- Published figures have no intervals: the intervals here are the {WIDENING:.0%} for each doubling alone, 17 % up and down for one doubling. The command's
  also contain what its own measurements leave open.
- The {ASSUMED_GROWTH:.0%} and {WIDENING:.0%} were chosen with these tables in sight: that they fit them is no independent test.
- Hosts have 8 GPUs each (K80: p2.8xlarge; V100 and A100: DGX); the batch is the same in all columns of a table as far as is known.
- Not predicted: tables with one column beside that of one device (Habana), and with no images/s (Horovod, 512 GPUs). B0 on 16 is refused: its only other column is of one host. The K80 tables exchange by parameter
  servers and are predicted by the same formula.
- An error is predicted over published images/s (of null steps: steps/s), less 1; positive is optimistic."""


def main() -> None:
    """Write the page."""
    found = [point for series in read_published() for point in hold_out(series)]
    path = PUBLISHED.with_suffix(".md")
    path.write_text(markdown(page(found)))
    print(path)


if __name__ == "__main__":
    main()
