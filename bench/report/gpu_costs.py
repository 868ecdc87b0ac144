"""What the GPUs of an arm used during its turns. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tfdist.bench.report.energy import joules
from tfdist.models.record import Record


@dataclass(frozen=True)
class GpuCosts:
    """Costs of all windows of all turns."""

    memory_bytes: int
    """The most that was in use on one GPU at a window's end."""
    utilization: float
    """The mean share of time in which a kernel ran, 0..1."""
    clock_mhz: float
    """The mean of the clocks of their multiprocessors."""
    throttle: str
    """All reasons for which a clock was lowered; empty: none."""
    power_w: float | None
    """Power of all GPUs of the job together; None: not measured in every window."""


def gpu_costs_of(records: Sequence[Record]) -> GpuCosts | None:
    """None without readings."""
    windows = [window for record in records for rank in record.ranks for window in rank.windows]
    readings = [gpu for window in windows if window.usage for gpu in window.usage.gpus]
    if not readings:
        return None
    return GpuCosts(
        memory_bytes=max(gpu.memory_bytes for gpu in readings),
        utilization=fmean(gpu.utilization for gpu in readings),
        clock_mhz=fmean(gpu.sm_clock_mhz for gpu in readings),
        throttle=", ".join(dict.fromkeys(gpu.throttle for gpu in readings if gpu.throttle)),
        power_w=_power_w(records),
    )


def _power_w(records: Sequence[Record]) -> float | None:
    energies = [joules(record.ranks) for record in records]
    known = [energy for energy in energies if energy is not None]
    seconds = math.fsum(
        max(math.fsum(window.elapsed_s for window in rank.windows) for rank in record.ranks) for record in records
    )
    return math.fsum(known) / seconds if len(known) == len(energies) and seconds else None
