"""`make soak MINUTES=30`: two trainings whose workers are killed again and again, at the same time.

parameter-server: a random worker every minute; it must end with every step applied. multiworker: a random worker every
three minutes, with a checkpoint every 50 steps; it must end at the accuracy of undisturbed runs. The memory of launcher
and agent is sampled. Writes bench_results/faults/soak.md and soak.csv.
"""

import argparse
import csv
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from tests.faults.jobs import TINY
from tests.faults.leftovers import left_over
from tests.faults.live import Live, TooLateError, launched
from tests.faults.results import FOLDER
from tests.faults.sandbox import PROGRAMS, Sandbox, sandbox

WINDOW = 5
PACE_S = 1.0
"""Pause after each window of 5 steps: a training of a few thousand steps then lasts half an hour."""
EVERY = 50
SAMPLE_S = 10.0
SETTLED = 0.2
"""The part of the time after which memory must be flat."""
FLAT_MB = 5.0
SEEDS = 3
"""Number of undisturbed runs."""
LATE = 2.0
"""A run may take this many times as long as planned."""


@dataclass(frozen=True)
class Part:
    """One of the two trainings."""

    name: str
    options: tuple[str, ...]
    victims: tuple[str, ...]
    period_s: float


PARTS = (
    Part("parameter-server", ("--strategy", "parameter-server", "--ps", "1"), ("worker-0", "worker-1"), 60.0),
    Part("multiworker", ("--strategy", "multiworker", "--evaluate"), ("worker-0", "worker-1"), 180.0),
)


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


def soak(part: Part, minutes: float, folder: Path, seed: int) -> Soaked:
    """Run one training and kill its workers."""
    steps = int(minutes * 60 / PACE_S) * WINDOW
    soaked = Soaked(part, steps)
    with sandbox(folder, None, uuid.uuid4().hex) as box:
        with launched(box, _arguments(part, steps, box)) as live:
            started_at = time.monotonic()
            try:
                _kill_again_and_again(soaked, live, minutes, random.Random(seed))
                soaked.code = live.end(minutes * 60 * LATE)
            except TooLateError as late:
                soaked.error, soaked.code = f"{late}\n{live.text[-3000:]}", live.process.poll()
            soaked.minutes = (time.monotonic() - started_at) / 60
        soaked.left = tuple(left_over(box))
        _keep_results(soaked, live.outcome())
    return soaked


def _arguments(part: Part, steps: int, box: Sandbox) -> list[str]:
    paced = ("--env", f"PYTHONPATH={PROGRAMS}", "--env", f"TFDIST_FAULTS={box.orders}")
    saved = ("--checkpoint-every", str(EVERY), "--checkpoint-dir", str(box.checkpoints), "--max-restarts", "1000")
    pace = ("--env", f"TFDIST_FAULTS_PACE={PACE_S}")
    return [*TINY, *part.options, "--workers", "2", *paced, *pace, *saved, "--steps", str(steps)]


def _kill_again_and_again(soaked: Soaked, live: Live, minutes: float, chance: random.Random) -> None:
    """Kill a random worker every period, for `minutes`; sample memory all the time."""
    start = time.monotonic()
    sample_at, kill_at = start, start + soaked.part.period_s
    while live.process.poll() is None:
        now = time.monotonic()
        live.update()
        if now >= sample_at:
            soaked.memory += _memory(live, now - start)
            sample_at += SAMPLE_S
        if kill_at <= now < start + minutes * 60 and _runs(live):
            with suppress(ProcessLookupError):
                os.kill(live.pid(chance.choice(soaked.part.victims)), signal.SIGKILL)
                soaked.kills += 1
            kill_at += soaked.part.period_s
        if now > start + minutes * 60 * LATE:
            raise TooLateError(f"{soaked.part.name} still runs after {minutes * LATE:.0f} minutes")
        time.sleep(0.1)


def _runs(live: Live) -> bool:
    """Whether a step was reported since the last start of a task."""
    last = next((seen for seen in reversed(live.seen) if seen.kind == "Started" or seen.event == "step"), None)
    return last is not None and last.kind != "Started"


def _memory(live: Live, at: float) -> list[tuple[float, str, float]]:
    launcher = psutil.Process(live.process.pid)
    samples = []
    with suppress(psutil.Error):
        agents = [each for each in launcher.children(recursive=True) if "tfdist-agent" in " ".join(each.cmdline())]
        for name, process in (("launcher", launcher), *(("agent", each) for each in agents[-1:])):
            samples.append((at, name, process.memory_full_info().uss / 1e6))
    return samples


def _keep_results(soaked: Soaked, outcome: Mapping[str, Any]) -> None:
    soaked.restarts = max(0, len(outcome.get("attempts", ())) - 1)
    records = list(outcome.get("records", {}).values())
    if records:
        soaked.updates, soaked.accuracy = records[0].get("updates_applied"), records[0].get("accuracy")


def undisturbed(steps: int, folder: Path) -> list[float]:
    """The accuracies of runs of the multiworker training with other seeds, at full speed."""
    accuracies = []
    for seed in range(SEEDS):
        with sandbox(folder / str(seed), None, uuid.uuid4().hex) as box:
            options = [*TINY, *PARTS[1].options, "--workers", "2", "--steps", str(steps), "--seed", str(seed)]
            with launched(box, options) as live:
                live.end(3600)
            soaked = Soaked(PARTS[1], steps)
            _keep_results(soaked, live.outcome())
            accuracies.append(soaked.accuracy if soaked.accuracy is not None else float("nan"))
    return accuracies


def problems(soaked: Soaked, accuracies: Sequence[float]) -> list[str]:
    """What must hold and does not."""
    found = [soaked.error] if soaked.error else []
    if soaked.code != 0:
        found.append(f"exit code {soaked.code}")
    if soaked.part.name == "parameter-server" and soaked.updates != soaked.steps:
        found.append(f"{soaked.updates} of {soaked.steps} steps applied")
    if soaked.part.name == "multiworker" and not _within(soaked.accuracy, accuracies):
        found.append(f"accuracy {soaked.accuracy}, undisturbed {', '.join(f'{each:.3f}' for each in accuracies)}")
    for process in ("launcher", "agent"):
        if not soaked.spread_mb(process) <= FLAT_MB:
            found.append(f"memory of the {process} varies by {soaked.spread_mb(process):.1f} MB")
    return found + [f"left over: {each}" for each in soaked.left]


def _within(accuracy: float | None, accuracies: Sequence[float]) -> bool:
    """Whether an accuracy is at most three standard deviations, or 0.02, below the mean of undisturbed runs."""
    spread = max(0.02, 3 * statistics.stdev(accuracies))
    return accuracy is not None and accuracy >= statistics.mean(accuracies) - spread


def text(results: Sequence[Soaked], accuracies: Sequence[float], minutes: float) -> str:
    """The page in Markdown."""
    lines = [
        "# Soak",
        "",
        f"`make soak MINUTES={minutes:g}`, {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC: two trainings at the same time on "
        f"{len(os.sched_getaffinity(0))} cores, the model `tiny` on `digits`.",
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


def main() -> int:
    """Run both trainings, and write what happened; 1 if anything was not as it must be."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tfdist-soak-"))
    results: list[Soaked] = []

    def run(part: Part) -> None:
        results.append(soak(part, options.minutes, folder / part.name, options.seed))

    threads = [threading.Thread(target=run, args=(part,)) for part in PARTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.sort(key=lambda each: PARTS.index(each.part))
    accuracies = undisturbed(results[-1].steps, folder / "undisturbed")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "soak.md").write_text(text(results, accuracies, options.minutes))
    save_samples(results, FOLDER / "soak.csv")
    print(text(results, accuracies, options.minutes))
    failed = any(problems(each, accuracies) for each in results)
    if failed:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
