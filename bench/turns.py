"""The length of a turn, what the hosts used meanwhile, and whether another arm fits into memory. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfdist.launch.agents.messages import Inspected
from tfdist.launch.events import Turn
from tfdist.models.record import HostUsage, Record, Window

PROCESS_BYTES = 1_000_000_000
"""Bytes of a process that has not been measured yet: TensorFlow's import alone takes 620 MB."""
HEADROOM = 1.2
"""The start of a process needs more than it keeps."""
RESERVE = 0.1
"""The share of each host's memory that stays free."""
END = Turn(0, 0)
"""The release that ends the tasks."""
STEPS_PER_WINDOW = 3
"""Fewest steps of a window."""


@dataclass(frozen=True)
class HostReading:
    """The counters of one host just before a turn and just after it."""

    before: Inspected | None
    """None: the tasks have just started."""
    after: Inspected

    @property
    def usage(self) -> HostUsage | None:
        """The differences; None without a reading before."""
        before, after = self.before, self.after
        needed = {"busy_s", "steal_s", "cores"}
        if before is None or not needed <= before.host.keys() & after.host.keys():
            return None
        cpu_s = {task: after.cpu_s[task] - before.cpu_s.get(task, 0.0) for task in after.cpu_s}
        busy_s, steal_s = (after.host[key] - before.host[key] for key in ("busy_s", "steal_s"))
        seconds = max(after.time - before.time, 1e-3)
        return HostUsage(seconds, max(1, int(after.host["cores"])), cpu_s, busy_s, steal_s)


@dataclass(frozen=True)
class Parked:
    """All leading tasks of an arm wait at the barrier."""

    arm: str
    step_s: float
    """Seconds that a step takes, of the slowest task."""
    windows: Mapping[str, tuple[Window, ...]]
    """Windows of the turn, by task; empty before the first turn."""
    readings: tuple[HostReading, ...]
    """One per host."""
    record: Record
    """Record of the incarnation so far."""
    observed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Observations of the turn, by task; see TurnRecord.observed."""

    @property
    def hosts(self) -> tuple[HostUsage, ...]:
        """What each host used during the turn."""
        return tuple(usage for reading in self.readings if (usage := reading.usage) is not None)


def plan_turn(seconds: float, step_s: float, window_s: float) -> Turn:
    """A turn of about `seconds`, of windows of at least `window_s` and STEPS_PER_WINDOW steps.

    Every task takes the same numbers of steps, so that those of a synchronous job need not agree during the turn.
    """
    step_s = max(step_s, 1e-6)
    steps = max(STEPS_PER_WINDOW, math.ceil(window_s / step_s))
    return Turn(max(1, round(seconds / (steps * step_s))), steps)


def plan_warmup(seconds: float, step_s: float) -> Turn:
    """One window of about `seconds`."""
    return Turn(1, max(1, math.ceil(seconds / max(step_s, 1e-6))))


@dataclass
class Memory:
    """What is known of the hosts' memory: read whenever an arm is parked."""

    available: dict[int, int] = field(default_factory=dict)
    """Bytes that each host had for new processes at its last reading, by its index among the arm's hosts."""
    total: int = 0
    """Bytes of the first host; 0: unknown."""
    process_bytes: int = PROCESS_BYTES
    """Bytes of the largest process so far, with headroom."""
    gpu_free: int | None = None
    """Bytes that the fullest GPU had free at the last reading; None: no GPU."""
    gpu_total: int = 0
    gpu_arm: int = 0
    """Bytes that the largest arm so far has taken of the fullest GPU, with headroom."""

    def update(self, parked: Parked) -> None:
        """Note the readings of an arm that has just been parked."""
        self.total = int(parked.record.hardware.get("memory_bytes", self.total))
        for number, reading in enumerate(parked.readings):
            sizes = reading.after.resident_bytes.values()
            self.process_bytes = max(self.process_bytes, int(HEADROOM * max(sizes, default=0)))
            if "available_bytes" in reading.after.host:
                self.available[number] = int(reading.after.host["available_bytes"])
        keys = {"gpu_free_bytes", "gpu_total_bytes"}
        of_gpus = [reading.after.host for reading in parked.readings if keys <= reading.after.host.keys()]
        if of_gpus:
            free = min(int(host["gpu_free_bytes"]) for host in of_gpus)
            self.gpu_total = max(int(host["gpu_total_bytes"]) for host in of_gpus)
            before = self.gpu_total if self.gpu_free is None else self.gpu_free
            self.gpu_arm = max(self.gpu_arm, int(HEADROOM * (before - free)))
            self.gpu_free = free

    def fits(self, processes: int, starting: Sequence[int], hosts: int = 1) -> bool:
        """Whether an arm of `processes` fits beside those that are starting; True before the first reading.

        Args:
            processes: of the arm.
            starting: processes of each arm that is starting, which the readings do not hold yet.
            hosts: that the arm runs on; its processes are spread evenly.
        """
        if not self.available:
            return True
        if self.gpu_free is not None:
            left = self.gpu_free - (1 + len(starting)) * self.gpu_arm
            if left < RESERVE * self.gpu_total:
                return False
        needed = (-(-processes // hosts) + sum(starting)) * self.process_bytes
        return min(self.available.values()) - needed >= RESERVE * self.total
