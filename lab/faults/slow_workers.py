"""Whether a worker that holds the others up is named with its cause, and nobody in a healthy job.

python -m lab.faults.slow_workers [CASE...] [--seconds S]    # each case once, by default all on CPUs: a minute each
python -m lab.faults.slow_workers healthy --seconds 3600
python -m lab.faults.slow_workers gpu-healthy gpu-30-ms-of-2 gpu-slow-input    # two workers on one GPU

The cases are planted on this machine with real trainings. Adds a line to bench_results/faults/slow_workers.csv after each.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd
from rich.console import Console

from lab.cpu_share import limited
from lab.faults.page import this_commit
from lab.faults.results import FOLDER, ROOT
from lab.faults.sandbox import PROGRAMS
from tfdist.jobs.plan import plan
from tfdist.jobs.request import Request
from tfdist.launch.agents.inbox import Message, Note
from tfdist.launch.agents.messages import Event, Started
from tfdist.launch.console.job_state import state_of
from tfdist.launch.job import Job
from tfdist.launch.machine import local_machines
from tfdist.launch.policy import Policy
from tfdist.launch.runs.rundir import create_run_dir
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision.run_tasks import launch

OUT = FOLDER / "slow_workers.csv"
SLOW_INPUT = PROGRAMS / "slow_input.py"
THROTTLED_CORES = 0.4
Plant = Callable[[int], AbstractContextManager[object]]
"""Slows the process with this pid."""


@contextmanager
def load_on_its_core(pid: int) -> Iterator[None]:
    """Another program on a core of this process."""
    with load_on(min(os.sched_getaffinity(pid))):
        yield


@contextmanager
def load_on(core: int) -> Iterator[None]:
    """Another program on this core."""
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin]) as other:
        try:
            yield
        finally:
            other.kill()


@contextmanager
def load_on_all_cores(_pid: int) -> Iterator[None]:
    """Another program on each core."""
    with ExitStack() as programs:
        for core in os.sched_getaffinity(0):
            programs.enter_context(load_on(core))
        yield


@dataclass(frozen=True)
class Case:
    """A job, and what makes its worker-1 slow."""

    workers: int
    slow_ms: float = 0.0
    plant: Plant | None = None
    program: Path | None = None
    """The user's own; None: the built-in training."""
    gpu: bool = False
    """Both workers on one GPU, with step times."""
    expected: str = ""
    """What the line must say; empty: there must be none."""


CASES = {
    "healthy": Case(2),
    "healthy-4": Case(4),
    "all-loaded": Case(2, plant=load_on_all_cores),
    "30-ms-of-2": Case(2, slow_ms=30.0, expected="it computes for"),
    "30-ms-of-4": Case(4, slow_ms=30.0, expected="it computes for"),
    "loaded-core": Case(2, plant=load_on_its_core, expected="other programs take"),
    "throttled": Case(2, plant=partial(limited, cores=THROTTLED_CORES), expected="its cgroup is throttled"),
    "slow-input": Case(2, program=SLOW_INPUT, expected="its input takes"),
    "gpu-healthy": Case(2, gpu=True),
    "gpu-30-ms-of-2": Case(2, slow_ms=30.0, expected="it computes for", gpu=True),
    "gpu-slow-input": Case(2, program=SLOW_INPUT, expected="its input takes", gpu=True),
}


def job_of(case: Case, steps: int) -> Job:
    """The job of a case, on this machine."""
    devices = {"logical_gpus": case.workers} if case.gpu else {"cores_per_device": 1}
    of_strategy = {"strategy": "multiworker", "workers": case.workers, **devices}
    if case.program is not None:
        return plan(Request(of_strategy, ("python", str(case.program), str(steps))), local_machines()).job
    choices = {**of_strategy, "dataset": "synthetic", "steps": steps, "preset": "reference" if case.gpu else "smoke"}
    step_times = {"step_times": True} if case.gpu else {}
    planted = {"slow_worker": 1, "slow_ms": case.slow_ms} if case.slow_ms else {}
    return plan(Request({**choices, **step_times, **planted}), local_machines()).job


def lines_of(case: Case, seconds: float) -> tuple[list[tuple[float, str]], float]:
    """What is said of slow workers while the job trains for `seconds`: seconds since the first step, and the line.

    And the largest share of its time that a worker has waited, as the live table shows it.
    """
    lines: list[tuple[float, str]] = []
    first_step = 0.0
    pid = 0
    planted = ExitStack()
    most = 0.0
    job = job_of(case, 10**7)
    steps = state_of(job).steps

    def note(message: Message) -> None:
        nonlocal first_step, pid, most
        if isinstance(message, Event) and message.event.get("event") == "step":
            steps.note(message.task, message.event, time.monotonic())
            most = max(most, *steps.waits().values(), 0.0)
        match message:
            case Started("worker-1", pid=started):
                pid = started
            case Event(event={"event": "step"}) if not first_step:
                first_step = time.monotonic()
                if case.plant is not None:
                    planted.enter_context(case.plant(pid))
            case Note(_, text):
                lines.append((time.monotonic() - first_step, text))
            case Event(event={"event": "step"}) if time.monotonic() - first_step > seconds:
                os.kill(os.getpid(), 15)  # as a user would end it

    with tempfile.TemporaryDirectory() as folder, RunWriter(create_run_dir(Path(folder), "slow")) as writer, planted:
        launch(job, writer, Policy(), {"note": note})
    return [(at, text) for at, text in lines if "holds the others up" in text or "is last in" in text], most


def main() -> int:
    """Measure the cases, and keep the results; 1 if anything was not as expected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cases",
        nargs="*",
        default=[name for name in CASES if not CASES[name].gpu],
        metavar="CASE",
        help=", ".join(CASES),
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of training")
    options = parser.parse_args()
    console = Console()
    commit = this_commit(ROOT)
    wrong = 0
    for name in options.cases:
        case = CASES[name]
        lines, most = lines_of(case, options.seconds)
        named = [text for _, text in lines if "is last in" in text]
        right = not lines
        if case.expected:
            right = bool(named) and lines[0][0] <= 60 and case.expected in named[0]
            right = right and all(text.startswith("worker-1 ") for text in named)
        row = {
            "case": name,
            "seconds": options.seconds,
            "lines": len(lines),
            "named_after_s": round(lines[0][0], 1) if lines else None,
            "most_waits": round(most, 3),
            "right": right,
            "first_line": lines[0][1] if lines else "",
            "commit": commit,
        }
        table = pd.concat([pd.read_csv(OUT) if OUT.exists() else pd.DataFrame(), pd.DataFrame([row])])
        table.to_csv(OUT, index=False, lineterminator="\n")
        console.print(
            f"{name}: {'right' if right else 'WRONG'}; {lines}; a worker waited for up to {most:.1%} of its time",
            soft_wrap=True,
        )
        wrong += not right
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
