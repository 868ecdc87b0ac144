"""`make soak MINUTES=30`: two trainings whose workers are killed again and again, at the same time.

parameter-server: a random worker every minute; it must end with every step applied. multiworker: a random worker every
three minutes, with a checkpoint every 50 steps; it must end at the accuracy of undisturbed runs. The memory of launcher
and agent is sampled. Writes bench_results/faults/soak.md and soak.csv.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil

from lab.faults.jobs import TINY, environment
from lab.faults.leftovers import left_over
from lab.faults.live import Live, TooLateError, launched
from lab.faults.page import this_commit
from lab.faults.results import FOLDER, ROOT
from lab.faults.sandbox import Sandbox, sandbox
from lab.faults.soak_page import Part, Soaked, problems, save_samples, text

PACE_S = 1.0
"""Pause after each window: a training of 2,000 steps then lasts half an hour."""
EVERY = 50
SAMPLE_S = 10.0
SEEDS = 3
"""Number of undisturbed runs."""
LATE = 2.0
"""A run may take this many times as long as planned."""


PARTS = (
    Part("parameter-server", ("--strategy", "parameter-server", "--ps", "1"), ("worker-0", "worker-1"), 60.0, 1.0),
    Part("multiworker", ("--strategy", "multiworker", "--set", "evaluate=true"), ("worker-0", "worker-1"), 180.0, 0.75),
)


def soak(part: Part, minutes: float, folder: Path, seed: int) -> Soaked:
    """Run one training and kill its workers."""
    steps = int(minutes * 60 * part.steps_per_s)
    soaked = Soaked(part, steps)
    with sandbox(folder, None, uuid.uuid4().hex) as box:
        with launched(box, _arguments(part, steps, box)) as live:
            started_at = time.monotonic()
            try:
                _kill_again_and_again(soaked, live, minutes, random.Random(seed))
                soaked.code = live.end(minutes * 60 * LATE)
            except TooLateError as late:
                soaked.error = f"{late}\n{live.text[-3000:]}"
                soaked.code = live.process.poll()
            soaked.minutes = (time.monotonic() - started_at) / 60
        soaked.left = tuple(left_over(box))
        _keep_results(soaked, live)
    return soaked


def _arguments(part: Part, steps: int, box: Sandbox) -> list[str]:
    saved = ("--checkpoint-every", str(EVERY), "--checkpoint-dir", str(box.checkpoints), "--max-restarts", "1000")
    return [*TINY, *part.options, "--workers", "2", *environment(box, PACE_S), *saved, "--steps", str(steps)]


def _kill_again_and_again(soaked: Soaked, live: Live, minutes: float, chance: random.Random) -> None:
    """Kill a random worker every period, for `minutes`; sample memory all the time."""
    start = time.monotonic()
    sample_at = start
    kill_at = start + soaked.part.period_s
    while live.process.poll() is None:
        now = time.monotonic()
        live.update()
        if now >= sample_at and _runs(live):
            with suppress(psutil.Error):  # one that has just ended
                soaked.memory += _memory(live, soaked.part.victims[0], now - start)
            sample_at = now + SAMPLE_S
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


def _memory(live: Live, agent_of: str, at: float) -> list[tuple[float, str, float]]:
    samples = [(at, "launcher", _private_mb(live.process.pid))]
    with suppress(OSError):  # the task has just ended
        samples.append((at, "agent", _private_mb(live.agent(agent_of))))
    return samples


def _private_mb(pid: int) -> float:
    return psutil.Process(pid).memory_full_info().uss / 1e6


def _keep_results(soaked: Soaked, live: Live) -> None:
    soaked.restarts = max(0, len(live.outcome().get("attempts", ())) - 1)
    ranks = live.ranks()
    if ranks:
        soaked.updates, soaked.accuracy = ranks[0]["updates_applied"], ranks[0]["accuracy"]


def undisturbed(steps: int, folder: Path, seeds: int = SEEDS) -> list[float]:
    """The accuracies of runs of the multiworker training with other seeds, at full speed."""
    accuracies = []
    for seed in range(seeds):
        with sandbox(folder / str(seed), None, uuid.uuid4().hex) as box:
            options = [*TINY, *PARTS[1].options, "--workers", "2", "--steps", str(steps), "--set", f"seed={seed}"]
            with launched(box, options) as live:
                live.end(3600)
            soaked = Soaked(PARTS[1], steps)
            _keep_results(soaked, live)
            accuracies.append(soaked.accuracy if soaked.accuracy is not None else float("nan"))
    return accuracies


def main() -> int:
    """Run both trainings, and write what happened; 1 if anything was not as it must be."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER", help="default: bench_results/faults")
    options = parser.parse_args()
    commit = this_commit(ROOT)
    folder = Path(tempfile.mkdtemp(prefix="tfdist-soak-"))
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda part: soak(part, options.minutes, folder / part.name, options.seed), PARTS))
    accuracies = undisturbed(results[-1].steps, folder / "undisturbed")
    options.out.mkdir(parents=True, exist_ok=True)
    page = text(results, accuracies, options.minutes, commit)
    (options.out / "soak.md").write_text(page)
    save_samples(results, options.out / "soak.csv")
    print(page)
    failed = any(problems(each, accuracies) for each in results)
    if failed:
        print(f"kept: {folder}")
    else:
        shutil.rmtree(folder)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
