"""A prediction as charts with published measurements beside it, a table and sentences."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from tfdist.bench.growth import ASSUMED_GROWTH, WIDENING
from tfdist.bench.predict.compute import batch_of
from tfdist.bench.predict.curve import RANGE, PredictedPoint, ScalingCurve
from tfdist.bench.predict.prediction import Prediction, values_of
from tfdist.bench.predict.ring import RingFit
from tfdist.bench.report.figures.colors import INK, MUTED, PALETTE, RED
from tfdist.bench.report.format import between
from tfdist.bench.report.section import Chart, Section
from tfdist.bench.statistics import Interval
from tfdist.bench.table import Column, Table
from tfdist.launch.text import counted, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class PublishedCurve:
    """A published curve or point."""

    name: str
    source: str
    devices: tuple[int, ...]
    images_per_s: tuple[float, ...] = ()
    efficiency: tuple[float, ...] = ()
    """Throughput over as many times one device; as published, not computed from images/s."""


_HOROVOD = (
    "https://github.com/horovod/horovod/blob/master/docs/benchmarks.rst, Pascal GPUs, 4 per server, 25 Gbit/s RoCE"
)
_OSDI = (
    "Abadi et al., TensorFlow: a system for large-scale machine learning, OSDI 2016, section 6.3, figure 8, K40 GPUs"
)

REFERENCES = (
    PublishedCurve("Horovod, Inception V3 and ResNet-101", _HOROVOD, (512,), efficiency=(0.90,)),
    PublishedCurve(
        "Horovod, VGG-16", f"{_HOROVOD}; 128 GPUs from its README of 2017", (128, 512), efficiency=(0.79, 0.68)
    ),
    PublishedCurve(
        "TensorFlow 2016, Inception-v3, asynchronous",
        f"{_OSDI}; about 500 to 2,000 images/s, read from the plot",
        (25, 200),
        images_per_s=(500, 2000),
    ),
    PublishedCurve("TensorFlow 2016, Inception-v3, highest", _OSDI, (200,), images_per_s=(2300,)),
)


_MARKERS = "os^Dvp"


def prediction_section(prediction: Prediction) -> Section:
    """The whole prediction."""
    return Section(
        key="prediction",
        title=f"{prediction.bench} on more devices",
        answer=tuple(_answer(prediction, curve) for curve in prediction.curves),
        charts=(_images_chart(prediction), _efficiency_chart(prediction)),
        tables=(prediction_table(prediction),),
        notes=tuple(_notes(prediction)),
    )


COLUMNS = (
    Column("arm", ("arm",)),
    Column("devices", ("devices",)),
    Column("images/s", ("images_per_s",), "{:,.0f}"),
    Column("95 % interval", ("images_per_s_low", "images_per_s_high"), "{:,.0f} to {:,.0f}"),
    Column("efficiency", ("efficiency",), "{:.0%}"),
    Column("its interval", ("efficiency_low", "efficiency_high"), "{:.0%} to {:.0%}"),
    Column("compute (ms)", ("compute_ms",), "{:.1f}"),
    Column("waiting (ms)", ("waiting_ms",), "{:.1f}"),
    Column("exchange (ms)", ("exchange_ms",), "{:.1f}"),
    Column("rest (ms)", ("rest_ms",), "{:.1f}"),
    Column("note", ("extrapolated",), lambda beyond: "extrapolation" if beyond else ""),
)


def _answer(prediction: Prediction, curve: ScalingCurve) -> str:
    last = curve.points[-1]
    worth = prediction.options.worth
    text = (
        f"{curve.arm.arm}: {last.images_per_s:,.0f} images/s on {counted(last.devices, 'device')}"
        f"{between(last.interval, ',.0f')}, efficiency {last.efficiency:.0%}"
        f"{', an extrapolation' if last.extrapolated else ''}."
    )
    low, high = curve.pays_interval
    share = f"{percent(worth)} of what one device alone does"
    most = f"{high:,}" if high else f"more than {last.devices:,}"
    if curve.pays_until is None:
        unsure = f", but the measurements leave open that only {low:,} pay" if low < last.devices else ""
        pays = f"Up to {last.devices:,}, each device adds at least {share}{unsure}."
    elif curve.pays_until == 1:
        unsure = f"; the measurements leave open that {most} devices pay" if high != 1 else ""
        pays = f"A second device does not pay: it adds less than {share}{unsure}."
    else:
        pays = f"Devices pay up to {curve.pays_until:,} (95 %: {low:,} to {most}): the next one adds less than {share}."
    served = f" The parameter servers can serve {curve.service:,.0f} images/s." if curve.service else ""
    return f"{text} {pays}{served}"


def _notes(prediction: Prediction) -> Iterator[str]:
    yield (
        "Every device has the same batch (weak scaling), and hosts are like the measured ones. A step is the compute "
        "time, the wait for the slowest of n devices by their measured spread, the exchange, and the rest that the "
        "measured arms take beside these."
    )
    yield from (_about_rest(curve) for curve in prediction.curves if curve.fit)
    for fit, gradient_bytes in prediction.fits:
        yield from _about_ring(fit, gradient_bytes)
    for link in dict.fromkeys(curve.link for curve in prediction.curves if curve.link):
        speed = link.bytes_per_s
        bandwidth = f"{8e-9 * speed:.3g} Gbit/s" if speed else "any bandwidth"
        yield (
            f"Predicted for links of {bandwidth} and {1e6 * link.latency_s:.0f} us one way: what the "
            "measured link took is replaced, the processes' own work on each message and byte stays."
        )
    yield (
        f"More than {RANGE} times the measured devices, or {RANGE} times more or less bandwidth, is an extrapolation "
        f"(dashed). The intervals contain what the measurements leave open, and {WIDENING:.0%} (one standard "
        "deviation) for each doubling of the devices beyond the measured ones."
    )
    yield from (f"{reference.name}: {reference.source}." for reference in REFERENCES)


def _about_rest(curve: ScalingCurve) -> str:
    *fewer, most = map(str, curve.measured)
    if fewer:
        numbers = f"{', '.join(fewer)} and {most}"
        return f"The rest of {curve.arm.arm} grows as it did over {numbers} devices: a + b log2(devices), b at least 0."
    return (
        f"{curve.arm.arm} was measured on one number of devices ({most}): its step is assumed to grow by "
        f"{ASSUMED_GROWTH:.0%} for each doubling beyond; bench the same arm on a second number to measure this growth."
    )


def _about_ring(fit: RingFit, gradient_bytes: int) -> Iterator[str]:
    ring = fit.ring
    fixed = f" and {1e6 * ring.fixed_s:.0f} us per operation" if ring.fixed_s else ""
    speed = f"{1e-9 / ring.seconds_per_byte:.3f} GB/s" if ring.seconds_per_byte else "no limit of bandwidth"
    ranks = " and ".join(map(str, fit.ranks))
    yield (
        f"Ring, fitted to all-reduces over {ranks} ranks: {1e6 * ring.latency_s:.0f} us per message{fixed}, {speed}; "
        f"the fit is off by {fit.error:.0%}. The gradients are {gradient_bytes / 1e6:.2f} MB."
    )
    if len(fit.ranks) == 1:
        yield (
            "One number of ranks cannot tell the latency of a message from the fixed cost of an operation: all of it "
            "counts as latency, so that many devices may do better than predicted."
        )
    if not fit.sizes[0] <= gradient_bytes <= fit.sizes[1]:
        yield "The gradients are outside the range of sizes that were measured: the exchange is an extrapolation."


def prediction_table(prediction: Prediction) -> Table:
    """A row for each arm and number of devices."""
    data = [values_of(curve, point) for curve in prediction.curves for point in curve.points]
    return Table("prediction", "Predictions", pd.DataFrame(data), COLUMNS)


_Value = Callable[[PredictedPoint], tuple[float, Interval]]


def _images_chart(prediction: Prediction) -> Chart:
    def paint(axes: "Axes") -> None:
        _curves(axes, prediction.curves, lambda point: (point.images_per_s, point.interval))
        first = prediction.curves[0]
        devices = prediction.options.devices
        one = batch_of(first.arm) / first.compute.times[0].seconds
        axes.plot(devices, [one * number for number in devices], color=RED, lw=1, ls=":", label="ideal")
        for curve in prediction.curves:
            numbers = [row.devices or 1 for row in curve.arms]
            rates = [row.rate for row in curve.arms]
            axes.plot(numbers, rates, "*", ms=11, color=INK, label="measured")
        _references(axes, [(each, each.images_per_s) for each in REFERENCES if each.images_per_s])
        axes.set_yscale("log")
        _finish(axes, "images/s of the whole job")

    return _chart(prediction, "prediction-images-per-s", "Images/s on more devices", paint, "images_per_s")


def _efficiency_chart(prediction: Prediction) -> Chart:
    from matplotlib.ticker import PercentFormatter

    def paint(axes: "Axes") -> None:
        _curves(axes, prediction.curves, lambda point: (point.efficiency, point.efficiency_interval))
        _references(axes, [(each, each.efficiency) for each in REFERENCES if each.efficiency])
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        _finish(axes, "efficiency over one device")

    return _chart(prediction, "prediction-efficiency", "Efficiency on more devices", paint, "efficiency")


def _chart(prediction: Prediction, name: str, title: str, paint: "Callable[[Axes], None]", column: str) -> Chart:
    table = prediction_table(prediction).data
    ends = [table[table["arm"] == curve.arm.arm].iloc[-1] for curve in prediction.curves]
    alt = "; ".join(f"{end['arm']}: {end[column]:.3g} on {end['devices']} devices" for end in ends)
    return Chart(name, title, f"{title}, predicted. {alt}", paint, table, inches=4.6)


def _curves(axes: "Axes", curves: Sequence[ScalingCurve], value: _Value) -> None:
    for index, curve in enumerate(curves):
        color = PALETTE[index % len(PALETTE)]
        style: dict[str, Any] = {"color": color, "marker": _MARKERS[index // len(PALETTE) % len(_MARKERS)], "ms": 4}
        within = [point for point in curve.points if not point.extrapolated]
        beyond = within[-1:] + [point for point in curve.points if point.extrapolated]
        if within:
            axes.plot([p.devices for p in within], [value(p)[0] for p in within], label=curve.arm.arm, **style)
        if len(beyond) > 1 or not within:
            label = f"{curve.arm.arm}, extrapolation"
            axes.plot([p.devices for p in beyond], [value(p)[0] for p in beyond], ls="--", label=label, **style)
        numbers = [point.devices for point in curve.points]
        limits = [value(point)[1] for point in curve.points]
        low = [each.low for each in limits]
        high = [each.high for each in limits]
        axes.fill_between(numbers, low, high, color=color, alpha=0.15, lw=0)


def _references(axes: "Axes", references: Sequence[tuple[PublishedCurve, tuple[float, ...]]]) -> None:
    for index, (reference, values) in enumerate(references):
        marker = _MARKERS[-1 - index]
        label = f"published, other hardware: {reference.name}"
        axes.plot(reference.devices, values, marker=marker, mfc="none", color=MUTED, lw=1, ms=6, label=label)


def _finish(axes: "Axes", unit: str) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("devices")
    axes.set_ylabel(unit)
