"""What a run of an arm costs besides its time: start-up, CPU time, step times, memory, GPUs and their energy. Pure."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, quantiles

from tfdist.bench.report.arm_records import ArmRecords
from tfdist.models.record import RankRecord, Record
from tfdist.models.throughput import window_step_ms
from tfdist.strategies.catalog import CATALOG


def joules(ranks: Sequence[RankRecord]) -> float | None:
    """Energy of all GPUs of a job over its timed windows; None if a rank has a window without readings.

    A GPU that several ranks of a host share counts once. The energy is that of the whole GPU, other programs included,
    and not that of the host.
    """
    by_gpu: dict[tuple[str, int], float] = {}
    for rank in ranks:
        if not rank.windows or not all(window.usage and window.usage.gpus for window in rank.windows):
            return None
        energies: dict[int, float] = {}
        for window in rank.windows:
            for gpu in window.usage.gpus if window.usage else ():
                # by the GPU's counter; without one, its power at the window's end for the whole window
                energy = gpu.power_w * window.elapsed_s if gpu.energy_j is None else gpu.energy_j
                energies[gpu.index] = energies.get(gpu.index, 0.0) + energy
        for index, energy in energies.items():
            by_gpu.setdefault((rank.host, index), energy)
    return sum(by_gpu.values()) if by_gpu else None


def cost_per_million(price_per_hour: float, images_per_s: float) -> float:
    """The price of a million images on hardware that costs `price_per_hour`, in the currency of the price."""
    return price_per_hour / 3600 / images_per_s * 1e6


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
    energies = [joules(record.ranks) for record in records]
    known = [energy for energy in energies if energy is not None]
    seconds = math.fsum(
        max(math.fsum(window.elapsed_s for window in rank.windows) for rank in record.ranks) for record in records
    )
    return GpuCosts(
        memory_bytes=max(gpu.memory_bytes for gpu in readings),
        utilization=fmean(gpu.utilization for gpu in readings),
        clock_mhz=fmean(gpu.sm_clock_mhz for gpu in readings),
        throttle=", ".join(dict.fromkeys(gpu.throttle for gpu in readings if gpu.throttle)),
        power_w=math.fsum(known) / seconds if len(known) == len(energies) and seconds else None,
    )


PHASES = ("import", "strategy", "build", "trace", "first_step_end")
"""Start-up phases in seconds; `first_step_end` counts from the start of the process to the end of the first step."""


@dataclass(frozen=True)
class Costs:
    """Each None or empty: not measured."""

    phases_s: Mapping[str, float] = field(default_factory=dict)
    """Phases of the slowest process; the median over the starts of the arm."""
    cpu_cores: float | None = None
    """CPU seconds of all processes of the job per second of its turns."""
    server_cores: float | None = None
    """The part of parameter servers."""
    step_ms: tuple[float, float, float] | None = None
    """Percentiles 50, 95 and 99 of `window_step_ms` over all turns."""
    resident_bytes: int | None = None
    """Resident memory of the largest process that trains, at the end of the last window."""
    largest_process_bytes: int | None = None
    """Peak resident memory of the largest process, the highest of all starts."""
    job_bytes: int | None = None
    """The sum of all processes' peaks, the highest of all starts."""
    gpus: GpuCosts | None = None


def costs_of(arm: ArmRecords) -> Costs:
    """What the records of the arm say."""
    # of each process, parameter servers included, by the operating system; else by its task
    peaks = [
        [task.peak_memory_bytes for task in record.usage.values()] or [rank.peak_memory_bytes for rank in record.ranks]
        for record in arm.starts
    ]
    last = max(arm.measured, key=lambda record: record.order, default=None)
    ends = [rank.windows[-1] for rank in last.ranks if rank.windows] if last else []
    resident = max((window.usage.resident_bytes for window in ends if window.usage), default=None)
    slowest = [
        {phase: max(rank.phases_s.get(phase, 0.0) for rank in record.ranks) for phase in PHASES}
        for record in arm.starts
        if record.ranks
    ]
    servers = [role.name for role in CATALOG[arm.strategy].roles if role.serves and not role.computes]
    return Costs(
        phases_s={phase: median(phases[phase] for phases in slowest) for phase in PHASES} if slowest else {},
        cpu_cores=_cores(arm.measured, None),
        server_cores=_cores(arm.measured, servers) if arm.spec.get("ps") else None,
        step_ms=_percentiles([value for record in arm.measured for value in window_step_ms(record)]),
        resident_bytes=resident,
        # the system counts both a little differently: a peak is not less than what was resident at some time
        largest_process_bytes=max((peak for record in peaks for peak in (*record, resident or 0)), default=None),
        job_bytes=max(map(sum, peaks), default=None),
        gpus=gpu_costs_of(arm.measured),
    )


def _cores(records: Sequence[Record], roles: Collection[str] | None) -> float | None:
    """CPU seconds per second of the tasks of these roles; None: of all tasks."""
    usages = [record.hosts_usage for record in records if record.hosts_usage]
    seconds = sum(max(host.seconds for host in hosts) for hosts in usages)
    cpu_s = [
        cpu_s
        for hosts in usages
        for host in hosts
        for task, cpu_s in host.cpu_s.items()
        if roles is None or task.rpartition("-")[0] in roles
    ]
    return sum(cpu_s) / seconds if seconds else None


def _percentiles(values: Sequence[float]) -> tuple[float, float, float] | None:
    if len(values) < 2:
        return (values[0],) * 3 if values else None
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[94], cuts[98]
