"""Seconds from starting a training to the end of its first step on all workers, with tfdist and without it.

Each round starts every case in shuffled order by two methods: `tfdist launch --preset cpu`, and the same training as bare
scripts, a process for each task, on the same cores and with as many threads (lab/bare_training.py: the loop of
TensorFlow's tutorials, but with the legacy Adam, as tfdist has it: with theirs the first step is twice as late). The
first step of parameter-server has ended once every worker's first step is applied.
"""

import argparse
import json
import os
import random
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import track
from rich.table import Table

from lab.commands import PYTHON, TFDIST
from tests.ports import free_ports
from tfdist.bench.mean import over_seeds
from tfdist.jobs.plan import plan
from tfdist.jobs.request import Request
from tfdist.launch.machine import local_machines
from tfdist.strategies.options import LEGACY_KERAS

ROUNDS = 10
BARE = Path(__file__).with_name("bare_training.py")
TIMEOUT_S = 300
WINDOWS = ("--set", "warmup_steps=2", "--set", "steps_per_window=1")
"""One step each, so that the first `step` events are those of single steps."""
TRAINING = ("--preset", "cpu", "--steps", "4", *WINDOWS, "--timeout", str(TIMEOUT_S))
MARK = b"first step at "
"""What a bare script prints before the time, seconds since 1970."""
GRACE_S = 15.0
WIDTH = 120
"""Columns of the table, also if stdout is not a terminal."""


@dataclass(frozen=True)
class Case:
    """A strategy with its numbers of tasks and devices."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Options of `tfdist launch`, without the dashes."""
    steps: int = 1
    """Steps until each worker has trained one."""


CASES: Mapping[str, Case] = {
    "one-device": Case(),
    "mirrored": Case({"devices": 2}),
    "multiworker": Case({"workers": 2}),
    "parameter-server": Case({"workers": 2, "ps": 1}, steps=2),
}
Times = dict[str, dict[str, list[float]]]
"""Seconds of each round, by case and method."""
Method = Callable[[str, Path], float]
"""Starts a case, with a folder for its files; returns the seconds until the first step has ended."""


@dataclass(frozen=True)
class Command:
    """A process to start."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables in addition to those of this process."""
    marks: int = 0
    """Number of first steps that it prints. It must not exit before it has printed them."""


@contextmanager
def started(commands: Sequence[Command], stderr: Path) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """The processes of these commands, which have ended afterwards."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with stderr.open("wb") as log:
            for each in commands:
                env = {**os.environ, **each.env}
                pipe, null = subprocess.PIPE, subprocess.DEVNULL
                processes.append(subprocess.Popen(each.argv, 0, stdin=null, stdout=pipe, stderr=log, env=env))
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.communicate(timeout=GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def failed(what: str, stderr: Path) -> SystemExit:
    """An exit with the end of what the processes wrote to stderr."""
    return SystemExit(f"first_step: {what}; its stderr ends with:\n{stderr.read_text(errors='replace')[-3000:]}")


def with_tfdist(name: str, folder: Path) -> float:
    """Seconds until the launcher has received the first step of all leading tasks."""
    case = CASES[name]
    stderr = folder / "stderr"
    counts = [word for option, count in case.counts.items() for word in (f"--{option}", str(count))]
    output = ["--quiet", "--runs-dir", str(folder / "runs")]
    start = time.time()
    with started([Command([TFDIST, "launch", "--strategy", name, *counts, *TRAINING, *output])], stderr) as (launcher,):
        launcher.communicate()
    if launcher.returncode:
        raise failed(f"tfdist launch of {name} exited with code {launcher.returncode}", stderr)
    ends: dict[str, float] = {}
    (run,) = (folder / "runs").iterdir()
    for message in map(json.loads, (run / "events.jsonl").read_text().splitlines()):
        event = message.get("event", {})
        if event.get("event") == "step" and event["step"] >= case.steps:
            ends.setdefault(message["task"], message["time"])
    return max(ends.values()) - start


def with_bare_scripts(name: str, folder: Path) -> float:
    """Seconds until the last of the leading tasks has printed its first step; no launcher starts them."""
    job = plan(Request({"preset": "cpu", "strategy": name, **CASES[name].counts}), local_machines()).job
    tasks = [each.task.name for each in job.plans if each.port is not None]
    job = job.with_ports(dict(zip(tasks, free_ports(len(tasks)), strict=True)))
    commands = []
    for task in job.plans:
        config = job.cluster.tf_config(task.task)
        threads = {option: value for option, value in task.program.env.items() if option.endswith("_THREADS")}
        env = {LEGACY_KERAS: "1", **threads, **({"TF_CONFIG": config} if config else {})}
        pinned = ["taskset", "--cpu-list", ",".join(map(str, task.cores))] if task.cores else []
        argv = [*pinned, PYTHON, str(BARE), name]
        commands.append(Command(argv, env, marks=task.task.name in job.leading))
    return until_marks(commands, f"the bare scripts of {name}", folder)


def until_marks(commands: Sequence[Command], what: str, folder: Path) -> float:
    """Seconds from the start of the first command to the latest mark, once all commands have printed theirs."""
    start = time.time()
    ends = []
    stderr = folder / "stderr"
    with started(commands, stderr) as processes:
        tasks = zip(processes, commands, strict=True)
        left = {process.stdout: each.marks for process, each in tasks if process.stdout is not None}
        while any(left.values()):
            ready, _, _ = select.select(list(left), [], [], max(0.0, start + TIMEOUT_S - time.time()))
            if not ready:
                raise failed(f"{what} did not end a step within {TIMEOUT_S} s", stderr)
            for pipe in ready:
                line = pipe.readline()
                if not line:
                    raise failed(f"{what}: a process exited before the first step", stderr)
                if line.startswith(MARK):
                    ends.append(float(line.removeprefix(MARK)))
                    left[pipe] -= 1
                    if not left[pipe]:
                        del left[pipe]  # it may exit now
    return max(ends) - start


def measure(cases: Sequence[str], methods: Mapping[str, Method], rounds: int, out: Path | None) -> Times:
    """Time all cases in turns. Each method starts the first case before, to read files into memory."""
    pairs = [(case, method) for case in cases for method in methods]
    turns = [(case, method) for case, method in pairs if case == cases[0]]
    warmups = len(turns)
    for number in range(rounds):
        turns += random.Random(number).sample(pairs, len(pairs))
    times: Times = {case: {method: [] for method in methods} for case in cases}
    progress = track(turns, description="first steps", console=Console(stderr=True), transient=True)
    for index, (case, method) in enumerate(progress):
        with tempfile.TemporaryDirectory() as folder:
            seconds = methods[method](case, Path(folder))
        if index >= warmups:
            times[case][method].append(seconds)
        if out is not None:
            out.write_text(json.dumps(times, indent=1) + "\n")
    return times


def table_of(times: Times, methods: Sequence[str]) -> Table:
    """Medians, and the geometric means of the ratios per round with their 95 % intervals (Student's, of logarithms)."""
    ours, *others = methods
    headings = [f"{method} s" for method in methods] + [f"{ours} / {method}" for method in others]
    table = Table("first step after", *headings, box=None, pad_edge=False)
    for case, row in times.items():
        medians = [f"{median(row[method]):.2f}" if row[method] else "-" for method in methods]
        table.add_row(case, *medians, *(ratio(row[ours], row[method]) for method in others))
    return table


def ratio(ours: Sequence[float], others: Sequence[float]) -> str:
    """The mean ratio and its interval, `0.93 (0.90 to 0.96)`; a dash without a counterpart."""
    mean = over_seeds([mine / other for mine, other in zip(ours, others, strict=False)])
    if mean is None:
        return "-"
    return f"{mean.value:.2f}" + (f" ({mean.interval.low:.2f} to {mean.interval.high:.2f})" if mean.interval else "")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the seconds of each round")
    options = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # all train on the CPU
    methods: dict[str, Method] = {"tfdist": with_tfdist, "TensorFlow": with_bare_scripts}
    times = measure(options.cases, methods, options.rounds, options.json)
    Console(highlight=False, width=WIDTH).print(table_of(times, list(methods)))


if __name__ == "__main__":
    main()
