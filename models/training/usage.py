"""What this process and its host use: read at window edges, so each reading takes well under a millisecond."""

import os
import time
from dataclasses import dataclass

from tfdist.launch.agents.program.files import host_usage, resident_bytes
from tfdist.models.record import WindowUsage


@dataclass(frozen=True)
class Reading:
    """Counters at one moment; the differences of two are a window's usage."""

    cpu_s: float
    busy_s: float
    steal_s: float
    resident_bytes: int


def read() -> Reading:
    """The counters now."""
    host = host_usage()
    return Reading(time.process_time(), host["busy_s"], host["steal_s"], resident_bytes(os.getpid()))


def between(start: Reading, end: Reading) -> WindowUsage:
    """The usage of a window, from the readings at its edges."""
    return WindowUsage(
        cpu_s=end.cpu_s - start.cpu_s,
        busy_s=end.busy_s - start.busy_s,
        steal_s=end.steal_s - start.steal_s,
        resident_bytes=end.resident_bytes,
    )
