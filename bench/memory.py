"""Whether another arm fits into memory beside those that are parked. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tfdist.bench.turns import HostReading, Parked

PROCESS_BYTES = 1_000_000_000
"""Bytes of a process that has not been measured yet: TensorFlow's import alone takes 620 MB."""
HEADROOM = 1.2
"""The start of a process needs more than it keeps."""
RESERVE = 0.1
"""The share of each host's memory that stays free."""


@dataclass
class Memory:
    """What is known of the hosts' memory: read whenever an arm is parked."""

    available: dict[str, int] = field(default_factory=dict)
    """Bytes that each host had for new processes at its last reading, by host."""
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
                self.available[str(number)] = int(reading.after.host["available_bytes"])

        free = [int(reading.after.host["gpu_free_bytes"]) for reading in parked.readings if _has_gpu(reading)]
        if free:
            self._update_gpu(
                min(free),
                max(int(reading.after.host["gpu_total_bytes"]) for reading in parked.readings if _has_gpu(reading)),
            )

    def _update_gpu(self, free: int, total: int) -> None:
        before = total if self.gpu_free is None else self.gpu_free
        self.gpu_free, self.gpu_total = free, total
        self.gpu_arm = max(self.gpu_arm, int(HEADROOM * (before - free)))

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


def _has_gpu(reading: HostReading) -> bool:
    return {"gpu_free_bytes", "gpu_total_bytes"} <= reading.after.host.keys()
