"""Throughput over the number of devices, with the ideal line, and the efficiency of all arms."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from tfdist.bench.growth import ASSUMED_GROWTH, error_of, from_fewer
from tfdist.bench.report.arm_names import common_name
from tfdist.bench.report.columns import DESCRIPTIONS, chart_data, scaling_of
from tfdist.bench.report.figures.arm_chart import arm_chart, described, draw_interval, is_narrow, write
from tfdist.bench.report.figures.colors import MUTED, NONE, PALETTE, RED
from tfdist.bench.report.format import ends, in_unit, span, three_digits
from tfdist.bench.report.section import Chart, Section
from tfdist.bench.report.summary import ArmRow, ReportData, fastest
from tfdist.bench.statistics import Interval
from tfdist.strategies.catalog import Exchange

_TEXT = (
    "Efficiency is the throughput of a device as a share of the baseline's. Against one device it includes what the "
    "devices of one machine take from each other; against independent trainings it is the cost of the strategy alone."
)


def efficiency_section(measured: ReportData) -> Section | None:
    """None without a baseline."""
    rows = [row for row in measured.rows if row.one_device or row.independent or not row.measured]
    if not any(row.measured for row in rows):
        return None
    alt = f"Efficiency of each arm: {described(f'{row.label} {_figures(row)}' for row in rows)}."
    data = pd.DataFrame([_values(row) for row in rows]).convert_dtypes()
    chart = arm_chart("efficiency", "Efficiency of each arm", alt, rows, paint_efficiency, data)
    return Section("efficiency", "Efficiency", (_TEXT,), charts=(chart,))


def _values(row: ArmRow) -> dict[str, object]:
    values: dict[str, object] = {"folder": row.folder, "arm": row.arm, "devices": row.devices}
    for name, versus in (("one_device", row.one_device), ("independent", row.independent)):
        values |= {
            f"baseline_{name}": versus.label if versus else None,
            f"efficiency_vs_{name}": versus.efficiency if versus else None,
            **ends(f"efficiency_vs_{name}", versus.efficiency_interval if versus else None),
        }
    return values


def _figures(row: ArmRow) -> str:
    of = (("the baseline", row.one_device), ("independent", row.independent))
    return ", ".join(f"{versus.efficiency:.0%} of {name}" for name, versus in of if versus) or row.status


def paint_efficiency(axes: Axes, rows: Sequence[ArmRow]) -> None:
    """Two bars for each arm, with intervals."""
    both = any(row.independent for row in rows) and any(row.one_device for row in rows)
    side, height = (0.17, 0.32) if both else (0.0, 0.5)
    for index, row in enumerate(rows):
        for offset, versus, color, label in (
            (-side, row.one_device, PALETTE[0], "against the baseline"),
            (side, row.independent, PALETTE[2], "against independent (same devices, no exchange)"),
        ):
            if versus:
                axes.barh(index + offset, versus.efficiency, height=height, color=color, label=label)
                high = draw_interval(axes, versus.efficiency_interval, versus.efficiency, index + offset, ms=5)
                write(axes, f"{versus.efficiency:.0%}", high, index + offset)
    axes.axvline(1.0, color=RED, lw=1.4, ls="--", label="ideal: 100 %")
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(in_unit("images/s per device, as a share of the baseline's", rows))
    axes.margins(x=0.08)


_SIZE = ("devices", "workers", "hosts", "batch_size", "global_batch_size", "cores_per_device", "steps", "seed")
"""Fields of a spec that may differ between the points of a curve."""
_FEWEST_SIZES = 3
"""Fewer numbers of devices are no curve."""
_MOST_CURVES = 10
_MARKERS = "osD^vP"
_Curves = Mapping[str, Sequence[ArmRow]]


def scaling_section(measured: ReportData) -> Section | None:
    """None with fewer than three numbers of devices, or without a baseline on one device."""
    rows = [row for row in measured.rows if _has_baseline(row)]
    if len({row.devices for row in rows}) < _FEWEST_SIZES:
        return None
    curves = _curves(rows)
    notes = [f"{DESCRIPTIONS[scaling_of(rows)]}."]
    if len(curves) > _MOST_CURVES:
        notes.append(f"The chart shows {_MOST_CURVES} of {len(curves):,} curves: those with the highest throughput.")
    # the best use of the largest number of devices
    most = max(row.devices or 0 for row in rows)
    largest = [row for row in rows if row.devices == most]
    best = fastest([row for row in largest if row.exchange is not Exchange.NONE] or largest)
    efficiency = best.one_device.efficiency if best.one_device else 0.0
    answers = [
        f"On {most} devices, the most that were measured, {best.label} has the most images/s: "
        f"{three_digits(best.rate)}, {efficiency:.0%} of {most} times one device."
    ]
    predictions = _predictions(curves) if scaling_of(rows) == "weak" else {}
    if found := predictions.get(best.label):
        answers.append(_about_prediction(best, *found))
    if predictions:
        notes.append(
            "Predictions are from the arms of the same curve with fewer devices: beside the time of one device, a step "
            "grows as theirs do with the logarithm of the number; if only one of them has several devices, by "
            f"{ASSUMED_GROWTH:.0%} for each doubling."
        )
    chart, answer = _chart(rows, curves, predictions), tuple(in_unit(text, rows) for text in answers)
    return Section("scaling", "Scaling", answer, (chart,), notes=tuple(notes))


def _has_baseline(row: ArmRow) -> bool:
    """Whether it may be ranked, and has a baseline on one device."""
    return row.one_device is not None and not row.why_not_ranked and row.one_device.devices == row.devices


_Predictions = Mapping[str, tuple[float, Interval]]
"""Images/s that fewer devices let expect, with the interval, by `ArmRow.label`."""


def _predictions(curves: _Curves) -> _Predictions:
    found = {}
    for family in curves.values():
        known: dict[int, tuple[float, float]] = {}
        for row in family if family[0].exchange is not Exchange.NONE else ():
            if row.devices and row.devices > 1 and row.one_device:
                if known and row.devices not in known:
                    found[row.label] = from_fewer(known, row.one_device.per_device, row.devices)
                known[row.devices] = row.rate, error_of(row.spread)
    return found


def _about_prediction(row: ArmRow, predicted: float, limits: Interval) -> str:
    verdict = "as predicted"
    if row.spread and (row.spread.high < limits.low or row.spread.low > limits.high):
        verdict = "slower than predicted" if row.rate < predicted else "faster than predicted"
    return (
        f"That is {verdict} from fewer devices: {three_digits(predicted)} images/s ({span((limits.low, limits.high))})."
    )


def _curves(rows: Sequence[ArmRow]) -> _Curves:
    """Arms that differ in their size only, each curve in the order of devices, the fastest curve first.

    In weak scaling they have the same batch per device, in strong scaling the same global batch. A curve of one point
    is named like its arm, any other one like what the names of its arms have in common.
    """
    strong = scaling_of(rows) == "strong"
    families: dict[tuple[Any, ...], list[ArmRow]] = {}
    for row in rows:
        spec = {key: str(value) for key, value in row.measured[0].spec.items() if key not in _SIZE}
        batch = row.batch_global if strong else row.batch_per_replica
        families.setdefault((row.folder, batch, *sorted(spec.items())), []).append(row)
    found = [common_name(row.label for row in family) or family[0].label for family in families.values()]
    named: dict[str, list[ArmRow]] = {}
    for name, family in zip(found, families.values(), strict=True):
        unique = name if found.count(name) == 1 else f"{name} ({family[0].arm})"
        named[unique] = sorted(family, key=lambda row: row.devices or 0)
    return dict(sorted(named.items(), key=lambda item: -fastest(item[1]).rate))


def curve_of(best: ArmRow, measured: Sequence[ArmRow]) -> list[ArmRow]:
    """The arms that differ from `best` in their size only, by number of devices, its baseline on one device first.

    Empty with fewer than three numbers of devices.
    """
    rows = [row for row in measured if _has_baseline(row)]
    if not any(row is best for row in rows):
        return []
    family = next(each for each in _curves(rows).values() if any(row is best for row in each))
    one = [row for row in rows if best.one_device and row.label == best.one_device.label and row not in family]
    curve = {row.devices: row for row in reversed([*one, *family])}  # of equal arms (A/A) the first
    return list(reversed(curve.values())) if len(curve) >= _FEWEST_SIZES else []


def _chart(rows: Sequence[ArmRow], curves: _Curves, predictions: _Predictions) -> Chart:
    shown = dict(list(curves.items())[:_MOST_CURVES])

    def paint(axes: Axes) -> None:
        drawn = [row for family in shown.values() for row in family]
        sizes = sorted({row.devices or 1 for row in drawn} | {1})
        for rate in dict.fromkeys(row.one_device.per_device for row in drawn if row.one_device):
            label = "ideal: as fast per device as the baseline"
            axes.plot(sizes, [rate * size for size in sizes], color=RED, lw=1.4, ls="--", label=label)
        styles = zip(cycle(PALETTE[:-1]), cycle(_MARKERS))
        for (name, family), (color, marker) in zip(shown.items(), styles, strict=False):
            _curve(axes, name, family, NONE if family[0].exchange is Exchange.NONE else color, marker)
        for row, (rate, limits) in ((row, predictions[row.label]) for row in drawn if row.label in predictions):
            reach, label = ([rate - limits.low], [limits.high - rate]), "predicted from fewer devices"
            axes.errorbar([row.devices or 1], [rate], yerr=reach, fmt="_", color=MUTED, capsize=6, lw=1, label=label)
        devices = sorted({row.devices or 1 for row in rows})
        if devices[-1] > 8:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
        else:
            axes.set_ylim(bottom=0)
        axes.set_xticks(devices, list(map(str, devices)))
        axes.set_xlabel("devices")
        axes.set_ylabel(in_unit("images/s of the whole job", rows))

    points = "; ".join(
        f"{name}: " + ", ".join(f"{row.images_per_s:.0f} on {row.devices}" for row in family)
        for name, family in shown.items()
    )
    alt = in_unit(f"Images/s over devices, with the ideal line. {points}.", rows)
    data = chart_data([row for family in curves.values() for row in family])
    data = data.assign(curve=[name for name, family in curves.items() for _ in family])
    found = [predictions.get(row.label) for family in curves.values() for row in family]
    values = [(each[0], each[1].low, each[1].high) if each else (None, None, None) for each in found]
    data[[f"images_per_s_predicted{end}" for end in ("", "_low", "_high")]] = pd.DataFrame(values, data.index)
    return Chart("scaling", "Throughput over devices", alt, paint, data, 4.2)


def _curve(axes: Axes, name: str, family: Sequence[ArmRow], color: str, marker: str) -> None:
    """The baseline begins a curve that has no point on one device."""
    start, size = family[0].one_device, 5 if is_narrow(axes) else 6
    devices, rates = [row.devices or 1 for row in family], [row.rate for row in family]
    first = [(1, start.per_device)] if start and devices[0] > 1 else []
    axes.plot(*zip(*first, *zip(devices, rates, strict=True), strict=True), color=color, lw=1.3, alpha=0.55)
    below = [row.rate - row.spread.low if row.spread else 0.0 for row in family]
    above = [row.spread.high - row.rate if row.spread else 0.0 for row in family]
    axes.errorbar(devices, rates, yerr=(below, above), color=color, fmt=marker, ms=size, capsize=3, lw=1.3, label=name)
