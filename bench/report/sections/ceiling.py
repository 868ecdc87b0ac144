"""How near each arm between processes comes to what the network allows, and arms above it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tfdist.bench.ceiling import AllReduce, ceiling, exchange_of, highest_ceiling
from tfdist.bench.report.arm_records import label_of
from tfdist.bench.report.format import ends, three_digits
from tfdist.bench.report.section import Section, Warning
from tfdist.bench.report.summary import ArmRow, ReportData
from tfdist.bench.table import Column, Table
from tfdist.launch.errors import TfdistError
from tfdist.models.spec import TrainingSpec

_NOTES = (
    "The floor is the least time of a ring all-reduce: each of n ranks sends 2(n-1)/n of the bytes of the gradients at "
    "the measured bandwidth. The ceiling is the global batch over that time and the time of a step of one device; with "
    "several packs, which can be exchanged while others are computed, over the longer of the two.",
    "The bandwidth is the highest bus bandwidth of 'tfdist collectives' on the same number of hosts (bench "
    "--collectives DIR), else that of one TCP stream between neighbouring hosts.",
)


@dataclass(frozen=True)
class _Ceiling:
    row: ArmRow
    exchange: AllReduce
    step_s: float
    """Step time of one device."""
    images_per_s: float
    highest: float
    """The ceiling with the uncertainty of the bandwidth and of one device."""

    @property
    def exceeded(self) -> bool:
        """The arm is measurably faster than the highest ceiling."""
        return self.row.spread is not None and self.row.spread.low > self.highest


def ceiling_section(measured: ReportData) -> Section | None:
    """None without an arm between processes whose bandwidth and one-device baseline are known."""
    ceilings = list(_ceilings(measured))
    if not ceilings:
        return None
    data = pd.DataFrame([_values(each) for each in ceilings]).convert_dtypes()
    table = Table("ceiling", "Images/s and the ceiling of the network", data, COLUMNS)
    return Section("ceiling", "Ceiling of the network", tuple(map(_sentence, ceilings)), (), (table,), _NOTES)


def ceiling_warnings(measured: ReportData) -> Iterator[Warning]:
    """Warnings for arms that are measurably above their ceiling."""
    for each in _ceilings(measured):
        if each.exceeded:
            yield Warning(
                "above-network-ceiling",
                f"{each.row.label}: {three_digits(each.row.rate)} images/s are more than the network allows, "
                f"{three_digits(each.images_per_s)} ({each.exchange.bandwidth.source}).",
                "Measure the bandwidth again with 'tfdist collectives', on the same hosts and without other load.",
            )


def _ceilings(measured: ReportData) -> Iterator[_Ceiling]:
    rows = {row.label: row for row in measured.rows}
    for row in measured.rows:
        if row.one_device is None or row.one_device.devices != row.devices:  # the baseline has several devices
            continue
        if "model" not in row.measured[0].spec:  # the user's own program
            continue
        try:
            spec = TrainingSpec.from_json(row.measured[0].spec)
        except TfdistError:  # of another version
            continue
        if exchange := exchange_of(spec, row.hosts, measured.sweeps.get(row.folder), row.link):
            one, spread = row.one_device.per_device, rows[row.one_device.label].spread
            most, highest = ceiling(spec, exchange, one), highest_ceiling(spec, exchange, spread, one)
            yield _Ceiling(row, exchange, spec.batch_size / one, most, highest)


def _sentence(each: _Ceiling) -> str:
    row, exchange = each.row, each.exchange
    share = row.rate / each.images_per_s
    words = "which is impossible: see the warning" if each.exceeded else f"{share:.0%} of it"
    size = f"{exchange.gradient_bytes / 1e6:.2f} MB"
    return (
        f"{row.label}: the network allows {three_digits(each.images_per_s)} images/s ({size} of gradients in "
        f"at least {exchange.floor_s * 1e3:.1f} ms beside {each.step_s * 1e3:.1f} ms of one device); "
        f"measured: {three_digits(row.rate)}, {words}."
    )


COLUMNS = (
    Column("arm", ("folder", "arm"), label_of),
    Column("ranks", ("ranks",)),
    Column("gradients (MB)", ("gradient_bytes",), lambda size: f"{size / 1e6:.2f}"),
    Column("bandwidth (GB/s)", ("bandwidth_bytes_per_s",), lambda speed: f"{speed / 1e9:.3g}"),
    Column("floor (ms)", ("floor_ms",), "{:.1f}"),
    Column("one device (ms)", ("one_device_step_ms",), "{:.1f}"),
    Column("ceiling (images/s)", ("ceiling_images_per_s",), "{:.1f}"),
    Column("measured (images/s)", ("images_per_s",), "{:.1f}"),
    Column("95 % interval", ("images_per_s_low", "images_per_s_high"), "{:.1f} to {:.1f}"),
    Column("bandwidth of", ("bandwidth_of",)),
)


def _values(each: _Ceiling) -> dict[str, Any]:
    row, exchange = each.row, each.exchange
    return {
        "folder": row.folder,
        "arm": row.arm,
        "ranks": exchange.ranks,
        "gradient_bytes": exchange.gradient_bytes,
        "bandwidth_bytes_per_s": exchange.bandwidth.bytes_per_s,
        "bandwidth_of": exchange.bandwidth.source,
        "floor_ms": exchange.floor_s * 1e3,
        "one_device_step_ms": each.step_s * 1e3,
        "ceiling_images_per_s": each.images_per_s,
        "ceiling_images_per_s_high": each.highest,
        "images_per_s": row.images_per_s,
        **ends("images_per_s", row.spread),
        "above": each.exceeded,
    }
