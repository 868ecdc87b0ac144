"""What `soak.py` has measured, what of it must hold, and the page about it."""

import csv
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

SETTLED = 0.2
"""The part of the time after which memory must be flat."""
FLAT_MB = 5.0


@dataclass(frozen=True)
class Part:
    """One of the two trainings."""

    name: str
    options: tuple[str, ...]
    victims: tuple[str, ...]
    period_s: float
    steps_per_s: float
    """Expected rate, pauses, kills and restarts included."""


@dataclass
class Soaked:
    """What happened to one training."""

    part: Part
    steps: int
    code: int | None = None
    kills: int = 0
    restarts: int = 0
    minutes: float = 0.0
    updates: int | None = None
    accuracy: float | None = None
    memory: list[tuple[float, str, float]] = field(default_factory=list)
    """Seconds since the start, process (`launcher` or `agent`), private MB."""
    left: tuple[str, ...] = ()
    error: str = ""

    def spread_mb(self, process: str) -> float:
        """Largest minus smallest memory of a process, once it has settled."""
        end = max((at for at, _, _ in self.memory), default=0.0)
        values = [mb for at, name, mb in self.memory if name == process and at >= SETTLED * end]
        return max(values) - min(values) if values else float("inf")


def problems(soaked: Soaked, accuracies: Sequence[float]) -> list[str]:
    """What must hold and does not."""
    found = [soaked.error] if soaked.error else []
    if soaked.code != 0:
        found.append(f"exit code {soaked.code}")
    # a step is scheduled again when its worker dies, even if the worker had applied it just before
    if soaked.part.name == "parameter-server" and not 0 <= (soaked.updates or 0) - soaked.steps <= soaked.kills:
        found.append(f"{soaked.updates} of {soaked.steps} steps applied")
    if any(map(math.isnan, accuracies)):
        found.append("an undisturbed run gave no accuracy")
    elif soaked.part.name == "multiworker" and not _within(soaked.accuracy, accuracies):
        found.append(f"accuracy {soaked.accuracy}, undisturbed {', '.join(f'{each:.3f}' for each in accuracies)}")
    for process in ("launcher", "agent"):
        if not soaked.spread_mb(process) <= FLAT_MB:
            found.append(f"memory of the {process} varies by {soaked.spread_mb(process):.1f} MB")
    return found + [f"left over: {each}" for each in soaked.left]


def _within(accuracy: float | None, accuracies: Sequence[float]) -> bool:
    """Whether an accuracy is at most three standard deviations, or 0.02, below the mean of undisturbed runs."""
    spread = max(0.02, 3 * statistics.stdev(accuracies))
    return accuracy is not None and accuracy >= statistics.mean(accuracies) - spread


def text(results: Sequence[Soaked], accuracies: Sequence[float], minutes: float, commit: str) -> str:
    """The page in Markdown."""
    lines = [
        "# Soak",
        "",
        f"`make soak MINUTES={minutes:g}`, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {commit}: two trainings at the same time "
        f"on {len(os.sched_getaffinity(0))} cores, the model `tiny` on `digits`.",
        "A random worker of parameter-server is killed every 60 s, one of multiworker every 180 s. Memory is private memory,",
        f"its range is that after the first {SETTLED:.0%} of the time; [soak.csv](soak.csv) has all samples.",
        "",
        "| | " + " | ".join(each.part.name for each in results) + " |",
        "| --- |" + " --: |" * len(results),
    ]
    rows: dict[str, list[object]] = {
        "exit code": [each.code for each in results],
        "minutes": [f"{each.minutes:.1f}" for each in results],
        "workers killed": [each.kills for each in results],
        "restarts": [each.restarts for each in results],
        "steps asked for": [each.steps for each in results],
        "steps applied": [each.updates for each in results],
        "accuracy": [_number(each.accuracy) for each in results],
        "memory of the launcher varies by, MB": [f"{each.spread_mb('launcher'):.1f}" for each in results],
        "memory of the agent varies by, MB": [f"{each.spread_mb('agent'):.1f}" for each in results],
        "left over": [len(each.left) for each in results],
        "as it must be": ["; ".join(problems(each, accuracies)) or "yes" for each in results],
    }
    lines += [f"| {name} | {' | '.join(map(str, values))} |" for name, values in rows.items()]
    lines += ["", f"Accuracy of undisturbed multiworker runs: {', '.join(f'{each:.3f}' for each in accuracies)}."]
    return "\n".join(lines) + "\n"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def save_samples(results: Sequence[Soaked], path: Path) -> None:
    """Write the memory samples."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("strategy", "seconds", "process", "private_mb"))
        for each in results:
            writer.writerows((each.part.name, round(at), process, round(mb, 2)) for at, process, mb in each.memory)
