"""What this process and its host use: read at window edges, so each reading takes well under a millisecond."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tfdist.launch.agent_program.files import host_usage, resident_bytes
from tfdist.models.record import GpuReading, WindowUsage
from tfdist.models.training.readings import gpu_readings


@dataclass(frozen=True)
class Reading:
    """Counters at one moment; the differences of two are a window's usage."""

    cpu_s: float
    busy_s: float
    steal_s: float
    resident_bytes: int
    gpus: tuple[GpuReading, ...] = ()
    """Their energy counts since the driver was loaded."""


def read() -> Reading:
    """The counters now."""
    host = host_usage()
    return Reading(time.process_time(), host["busy_s"], host["steal_s"], resident_bytes(os.getpid()), gpu_readings())


def between(start: Reading, end: Reading) -> WindowUsage:
    """The usage of a window, from the readings at its edges."""
    return WindowUsage(
        cpu_s=end.cpu_s - start.cpu_s,
        busy_s=end.busy_s - start.busy_s,
        steal_s=end.steal_s - start.steal_s,
        resident_bytes=end.resident_bytes,
        gpus=tuple(replace(gpu, energy_j=_energy_j(gpu, start.gpus)) for gpu in end.gpus),
    )


def _energy_j(end: GpuReading, gpus: Sequence[GpuReading]) -> float | None:
    """The energy of a GPU since its reading among `gpus`; None if there is none."""
    start = next((gpu.energy_j for gpu in gpus if gpu.index == end.index), None)
    return None if start is None or end.energy_j is None else end.energy_j - start
