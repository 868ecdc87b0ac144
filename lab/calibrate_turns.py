"""Shows what measuring in turns is worth on this machine. Run it with `make calibrate`; stop all other programs first.

1. The CPU time of parked processes.
2. An arm alone against the same arm beside parked neighbours, which are started and ended several times meanwhile.
3. The same arm twice (A/A): in turns, and in fresh processes for each turn.

Writes turns.md; the suites of the A/A benches stay in a temporary folder.
"""

import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from statistics import fmean

import psutil
from rich.console import Console

from tfdist.bench.arm_process import ArmStart, News, start_arm
from tfdist.bench.design import Block
from tfdist.bench.group import Group
from tfdist.bench.mean import over_seeds
from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import Progress
from tfdist.bench.reading import read_folder
from tfdist.bench.run_session import run_session
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import prepare
from tfdist.bench.statistics import Statistics
from tfdist.bench.turns import Memory, plan_turn
from tfdist.jobs.plan import Planned, plan
from tfdist.jobs.request import Request
from tfdist.launch.machine import combined, local_machines
from tfdist.launch.policy import Policy
from tfdist.models.record import TurnRecord
from tfdist.models.throughput import throughput

TURN_S, WARMUP_S, WINDOW_S = 2.5, 3.0, 0.5
PARKED_S = 10.0
PHASES, TURNS = 3, 5
"""Times that the neighbours are started; turns of the arm with and without them each time."""
ROUNDS = 8
Choices = dict[str, object]
MEASURED: Choices = {"strategy": "multiworker", "workers": 2, "communication": "ring"}
NEIGHBOURS: dict[str, Choices] = {
    "one-device": {"strategy": "one-device"},
    "mirrored": {"strategy": "mirrored", "devices": 2},
    "parameter-server": {"strategy": "parameter-server", "workers": 2, "ps": 1},
}
console = Console(stderr=True, width=120)


@dataclass(frozen=True)
class Figure:
    """One line of the result."""

    what: str
    value: float
    low: float | None
    high: float | None
    unit: str
    note: str = ""


@dataclass
class Latest(Progress):
    """Keeps the throughput of the last turn."""

    images_per_s: float = 0.0

    def done(self, turn: TurnRecord, images_per_s: float) -> None:
        self.images_per_s = images_per_s

    def note(self, text: str) -> None:
        console.print(text)


@dataclass
class Arms:
    """Groups of arms with folders of their own."""

    root: Path
    started: int = 0
    progress: Latest = field(default_factory=Latest)

    def start(self, choices: dict[str, Choices]) -> Group:
        """These arms, warmed up and parked."""
        self.started += 1
        news: SimpleQueue[News] = SimpleQueue()
        group = Group(self.started, news, start_arm, self.progress, lambda record, run_dir: None, Memory())
        group.start([self._start_of(arm, chosen) for arm, chosen in choices.items()], slots=2)
        group.warm_up(WARMUP_S)
        return group

    def _start_of(self, arm: str, chosen: Choices) -> ArmStart:
        folder = self.root / f"{self.started}-{arm}"
        return ArmStart(arm, self.started, planned(chosen), folder, Policy(timeout_s=300))

    def rates(self, group: Group, arm: str, turns: int) -> list[float]:
        """Images per second of some turns of an arm."""
        rates = []
        for _ in range(turns):
            if group.turn(arm, 1, 1, partial(plan_turn, TURN_S, window_s=WINDOW_S)) is None:
                sys.exit(f"{arm} ended: {group.failed}")
            rates.append(self.progress.images_per_s)
        return rates


def planned(chosen: Choices) -> Planned:
    """MobileNetV2 at 96 px, as in the suite cpu."""
    choices = {**chosen, "dataset": "synthetic", "evaluate": False, "preset": "cpu"}
    return plan(Request(choices, paced=True), local_machines())


def parked_cpu(arms: Arms) -> Iterator[Figure]:
    """CPU seconds of the tasks of parked arms, and of the launcher with its agents, in PARKED_S seconds."""
    group = arms.start({"multiworker": dict(MEASURED), **NEIGHBOURS})
    tasks = {arm: pids_of(member.start.run_dir) for arm, member in group.members.items()}
    everyone = [psutil.Process(), *psutil.Process().children(recursive=True)]
    before = {process.pid: sum(process.cpu_times()[:2]) for process in everyone}
    time.sleep(PARKED_S)
    used = {process.pid: sum(process.cpu_times()[:2]) - before[process.pid] for process in everyone}
    for arm, pids in tasks.items():
        what = f"CPU of {len(pids)} parked tasks ({arm})" if len(pids) > 1 else f"CPU of a parked task ({arm})"
        yield Figure(what, sum(used[pid] for pid in pids), None, None, f"s in {PARKED_S:g} s")
    rest = sum(used.values()) - sum(used[pid] for pids in tasks.values() for pid in pids)
    yield Figure("CPU of the launcher and 4 agents", rest, None, None, f"s in {PARKED_S:g} s")
    group.end()


def pids_of(run_dir: Path) -> list[int]:
    """The processes of a run's tasks."""
    events = map(json.loads, (run_dir / "events.jsonl").read_text().splitlines())
    return [event["pid"] for event in events if event["kind"] == "Started"]


def beside_neighbours(arms: Arms) -> Figure:
    """The throughput of an arm beside parked neighbours over that alone, just before and after."""
    measured = arms.start({"multiworker": dict(MEASURED)})
    alone, beside = [arms.rates(measured, "multiworker", TURNS)], []
    for _ in range(PHASES):
        neighbours = arms.start(NEIGHBOURS)
        beside.append(arms.rates(measured, "multiworker", TURNS))
        neighbours.end()
        alone.append(arms.rates(measured, "multiworker", TURNS))
    measured.end()
    means = [fmean(map(math.log, rates)) for rates in alone]
    ratios = [
        math.exp(fmean(map(math.log, rates)) - (before + after) / 2)
        for rates, before, after in zip(beside, means[:-1], means[1:], strict=True)
    ]
    mean = over_seeds(ratios)
    assert mean is not None
    assert mean.interval is not None
    what = f"multiworker beside {len(NEIGHBOURS)} parked arms, over alone"
    note = f"{PHASES} times {TURNS} turns each, alternating"
    return Figure(what, mean.value, mean.interval.low, mean.interval.high, "ratio", note)


def equal_arms(root: Path, isolated: bool) -> Iterator[Figure]:
    """The same arm twice, in turns or each turn in fresh processes."""
    suite = root / "equal.toml"
    arms = "".join(f'[[arms]]\nname = "{name}"\nstrategy = "one-device"\n' for name in ("first", "second"))
    suite.write_text(
        f'preset = "cpu"\nall = true\nrounds = {ROUNDS}\nincarnations = 2\n[defaults]\ndataset = "synthetic"\n{arms}'
    )
    folder = root / ("fresh" if isolated else "turns")
    session = prepare(BenchOptions(suite=str(suite), out=folder, isolated=isolated), local_machines())
    started = time.monotonic()
    run_session(session, RunnerHooks(Latest()))
    seconds = time.monotonic() - started
    kind = "in fresh processes" if isolated else "in turns"
    rounds: dict[str, dict[Block, float]] = {"first": {}, "second": {}}
    for record in read_folder(folder, "").records:
        rounds[record.arm][Block(record.group, record.round, record.incarnation)] = throughput(record)
    (versus,) = Statistics(rounds).compare([("second", "first")])
    low, high = (versus.interval.low, versus.interval.high) if versus.interval else (None, None)
    yield Figure(f"A/A {kind}", versus.ratio, low, high, "ratio", f"{ROUNDS} rounds")
    yield Figure(f"A/A {kind}, the whole bench", seconds, None, None, "s")


def markdown(figures: Sequence[Figure]) -> str:
    """The result as a page."""
    machine = local_machines()
    cores = len(combined(machine).cores)
    lines = [
        "# Measuring in turns",
        "",
        f"Written by `make calibrate` on a machine with {cores} cores. MobileNetV2, 96 px, batch 16 per device; turns of",
        f"{TURN_S:g} s. Intervals are 95 %.",
        "",
        "| what | value | 95 % | unit | |",
        "| --- | --: | --- | --- | --- |",
    ]
    for figure in figures:
        bounds = f"{figure.low:.3f} to {figure.high:.3f}" if figure.low and figure.high else ""
        lines.append(f"| {figure.what} | {figure.value:.3f} | {bounds} | {figure.unit} | {figure.note} |")
    return "\n".join([*lines, ""])


def main(out: Path) -> None:
    """Measure everything; write what is there after each part."""
    figures: list[Figure] = []

    def keep(new: Iterator[Figure]) -> None:
        for figure in new:
            figures.append(figure)
            console.print(f"{figure.what}: {figure.value:.3f} {figure.unit}")
        out.mkdir(parents=True, exist_ok=True)
        (out / "turns.md").write_text(markdown(figures), encoding="utf-8")

    with tempfile.TemporaryDirectory(prefix="tfdist-calibrate-") as folder:
        arms = Arms(Path(folder) / "arms")
        keep(parked_cpu(arms))
        keep(iter([beside_neighbours(arms)]))
        keep(equal_arms(Path(folder), isolated=False))
        keep(equal_arms(Path(folder), isolated=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("bench_results/calibration"))
