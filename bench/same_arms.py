"""What this machine's benches found for pairs of equal arms (A/A): by how much their ratios differ beyond their noise.

Each bench with such a pair adds a line to same_arms.csv (`history`).
"""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfdist.bench.history import append_rows, history_file, read_rows
from tfdist.bench.statistics import FLOOR, Comparison
from tfdist.launch.agent_program.system import first_value
from tfdist.launch.machine import Machines, combined
from tfdist.launch.text import counted

FEWEST_PAIRS = 20
"""The floor of a machine with fewer pairs is FLOOR."""


@dataclass(frozen=True)
class SamePair:
    """Two arms of the same configuration."""

    arm: str
    """`ArmRow.label`."""
    other: str
    comparison: Comparison
    """`arm` over `other`."""
    error: float | None
    """Standard error of the logarithm of their ratio by the starts alone; None: too few of them."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        interval = self.comparison.interval
        return {
            "arm": self.arm,
            "other": self.other,
            "ratio": self.comparison.ratio,
            "low": interval.low if interval else None,
            "high": interval.high if interval else None,
            "rounds": self.comparison.rounds,
        }


_FILE = "same_arms.csv"
_COLUMNS = ("machine", "folder", "arm", "other", "ratio", "error")
"""Columns of the file: the machine's name, the absolute path of the bench, and as in `SamePair`."""


def machine_name(machines: Machines) -> str:
    """The machine, or the hosts, to which pairs belong."""
    if not all(host.local for host in machines):
        return ", ".join(host.name for host in machines)
    machine = combined(machines)
    cpu = first_value("/proc/cpuinfo", "model name") or os.uname().machine
    return ", ".join([cpu, counted(len(machine.cores), "core"), *machine.gpus])


def floor_on(machine: str) -> float:
    """The standard deviation of ratios of equal arms beyond their own noise: that of this machine, or FLOOR.

    The method of moments: mean squared log ratio less mean squared error (DerSimonian and Laird 1986).
    """
    pairs = list(_measured_pairs(machine))
    if len(pairs) < FEWEST_PAIRS:
        return FLOOR
    excess = math.fsum(math.log(ratio) ** 2 - error**2 for ratio, error in pairs) / len(pairs)
    return math.sqrt(max(excess, 0.0))


def remember(pairs: Sequence[SamePair], machine: str, root: Path) -> str:
    """Append the pairs of the bench in `root`; returns a warning if that is not possible, else an empty text.

    If a bench is resumed, the last line of each pair counts.
    """
    known = [(p.arm, p.other, f"{p.comparison.ratio:.4f}", f"{p.error:.4f}") for p in pairs if p.error is not None]
    try:
        if known:
            append_rows(_FILE, _COLUMNS, ((machine, root.resolve(), *pair) for pair in known))
    except OSError as error:
        return f"the ratio of equal arms is not added to {history_file(_FILE)}: {error.strerror}"
    return ""


def _measured_pairs(machine: str) -> Iterator[tuple[float, float]]:
    """Ratio and error of each pair of this machine."""
    last = {(line["folder"], line["arm"], line["other"]): line for line in read_rows(_FILE, _COLUMNS)}
    for line in last.values():
        with suppress(ValueError):
            ratio, error = float(line["ratio"]), float(line["error"])
            if line["machine"] == machine and 0 < ratio < math.inf and 0 <= error < math.inf:
                yield ratio, error
