"""What a run of an arm costs besides its time: start-up, CPU time, step times, memory, GPUs and their energy. Pure."""

import math
from collections.abc import Collection, Sequence
from statistics import fmean, median
from typing import Any

from tfdist.bench.report.arm_records import ArmRecords
from tfdist.models.record import RankRecord, Record
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
        for window, gpu in ((each, gpu) for each in rank.windows if each.usage for gpu in each.usage.gpus):
            # by the GPU's counter; without one, its power at the window's end for the whole window
            energy = gpu.power_w * window.elapsed_s if gpu.energy_j is None else gpu.energy_j
            energies[gpu.index] = energies.get(gpu.index, 0.0) + energy
        for index, energy in energies.items():
            by_gpu.setdefault((rank.host, index), energy)
    return sum(by_gpu.values()) if by_gpu else None


_OF_GPUS = ("gpu_memory_mb", "gpu_utilization", "gpu_clock_mhz", "gpu_throttle", "gpu_power_w", "images_per_joule")


def _gpu_values(records: Sequence[Record], images_per_s: float | None) -> dict[str, Any]:
    """Costs over all windows of all turns; each None without readings."""
    windows = [window for record in records for rank in record.ranks for window in rank.windows]
    readings = [gpu for window in windows if window.usage for gpu in window.usage.gpus]
    if not readings:
        return dict.fromkeys(_OF_GPUS)
    allocated = [peak for record in records for rank in record.ranks for peak in rank.gpu_peak_bytes]
    known = [energy for record in records if (energy := joules(record.ranks)) is not None]
    elapsed_s = [[math.fsum(window.elapsed_s for window in rank.windows) for rank in each.ranks] for each in records]
    seconds = math.fsum(map(max, elapsed_s))
    power = math.fsum(known) / seconds if len(known) == len(records) and seconds else None
    values = (
        # the most that TensorFlow allocated on one GPU; of a program without it, the most that was in use there
        max(allocated or (gpu.memory_bytes for gpu in readings)) / 1e6,
        fmean(gpu.utilization for gpu in readings),
        fmean(gpu.sm_clock_mhz for gpu in readings),
        ", ".join(dict.fromkeys(gpu.throttle for gpu in readings if gpu.throttle)),
        power,  # of all GPUs of the job
        images_per_s / power if images_per_s and power else None,
    )
    return dict(zip(_OF_GPUS, values, strict=True))


_PHASES = ("import", "strategy", "build", "trace", "first_step_end")
"""Start-up phases in seconds; `first_step_end` counts from the start of the process to the end of the first step."""


def cost_values(arm: ArmRecords, images_per_s: float | None) -> dict[str, Any]:
    """Columns of report.csv and report.json, documented in bench_results/README.md; None: not measured."""
    # of each process, parameter servers included, by the operating system; else by its task
    peaks = [
        [task.peak_memory_bytes for task in record.usage.values()] or [rank.peak_memory_bytes for rank in record.ranks]
        for record in arm.starts
    ]
    last = max(arm.measured, key=lambda record: record.order, default=None)
    ends = [rank.windows[-1] for rank in last.ranks if rank.windows] if last else []
    resident = max((window.usage.resident_bytes for window in ends if window.usage), default=None)
    # the system counts both a little differently: a peak is not less than what was resident at some time
    largest = max((peak for record in peaks for peak in (*record, resident or 0)), default=None)
    servers = [role.name for role in CATALOG[arm.strategy].roles if role.serves and not role.computes]
    return {
        **{f"start_{phase}_s": _start_s(arm, phase) for phase in _PHASES},
        "cpu_cores": _cores(arm.measured, None),
        "cpu_cores_parameter_servers": _cores(arm.measured, servers) if arm.spec.get("ps") else None,
        **{f"step_ms_p{each}": _percentile(arm.step_ms, each) for each in (50, 95, 99)},
        "memory_largest_process_mb": _mega(resident),
        "peak_memory_largest_process_mb": _mega(largest),
        "peak_memory_job_mb": _mega(max(map(sum, peaks), default=None)),
        **_gpu_values(arm.measured, images_per_s),
    }


def _start_s(arm: ArmRecords, phase: str) -> float | None:
    """The phase of the slowest process; the median over the starts of the arm."""
    slowest = [max(rank.phases_s.get(phase, 0.0) for rank in record.ranks) for record in arm.starts if record.ranks]
    return median(slowest) if slowest else None


def _mega(size: int | None) -> float | None:
    return None if size is None else size / 1e6


def _cores(records: Sequence[Record], roles: Collection[str] | None) -> float | None:
    """CPU seconds per second of the tasks of these roles; None: of all tasks."""
    usages = [record.hosts_usage for record in records if record.hosts_usage]
    seconds = sum(max(host.seconds for host in hosts) for hosts in usages)
    tasks = [task for hosts in usages for host in hosts for task in host.cpu_s.items()]
    cpu_s = sum(cpu_s for task, cpu_s in tasks if roles is None or task.rpartition("-")[0] in roles)
    return cpu_s / seconds if seconds else None


def _percentile(values: Sequence[float], percent: float) -> float | None:
    from numpy import percentile  # a launch does not need it

    return float(percentile(values, percent)) if values else None
