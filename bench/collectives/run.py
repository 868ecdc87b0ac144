"""Runs a measurement of collectives: starts its arms, releases one after the other, saves the lines of each turn."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from signal import SIGTERM

from tfdist.bench.arm_process import ArmStart, News
from tfdist.bench.collectives.plan import CollectivePlan
from tfdist.bench.collectives.results import Line, SweepFolder, SweepHeader
from tfdist.bench.folder import BenchPaths
from tfdist.bench.group import STOPPED_BY, Group, InterruptedBenchError, Pace
from tfdist.bench.plan import PlannedRun, Spent
from tfdist.bench.runner import TIMEOUT_S, RunnerHooks
from tfdist.bench.turns import Memory, Parked
from tfdist.launch.agents.inbox import interruptions
from tfdist.launch.doctor.preflight import slowest
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.events import Turn
from tfdist.launch.machine import combined
from tfdist.models.collectives.spec import CollectiveSpec
from tfdist.models.record import CollectiveCase, Record, RecordStatus
from tfdist.strategies.options import StrategyName


def lines_of(spec: CollectiveSpec, hosts: int, run: PlannedRun, parked: Parked) -> list[Line]:
    """What the tasks of an arm report about a turn: of each case the time of the slowest task, and all wrong elements.

    Raises:
        TfdistError: the tasks report different cases.
    """
    reports: list[list[CollectiveCase]] = [observed.get("collectives", []) for observed in parked.observed.values()]
    keys = [
        [(case["bytes"], case["tensors"], case["pack_bytes"], case["iterations"]) for case in report]
        for report in reports
    ]
    if any(other != keys[0] for other in keys):
        raise TfdistError(f"{run.arm}: its tasks measured different sizes in a turn", ExitCode.FAILED)
    return [_line(spec, hosts, run, cases) for cases in zip(*reports, strict=True)]


def _line(spec: CollectiveSpec, hosts: int, run: PlannedRun, cases: Sequence[CollectiveCase]) -> Line:
    first, between = cases[0], spec.strategy is StrategyName.MULTI_WORKER
    return Line(
        arm=run.arm,
        op=spec.op,
        hosts=hosts,
        ranks=spec.replicas,
        bytes=first["bytes"],
        tensors=first["tensors"],
        pack_bytes=first["pack_bytes"] or None,
        dtype=spec.gradient_dtype,
        round=run.round,
        iterations=first["iterations"],
        seconds=max(case["seconds"] for case in cases) / first["iterations"],
        wrong=sum(case["wrong"] for case in cases),
        communication=str(spec.communication) if between else None,
        cross_device=None if between else str(spec.cross_device),
    )


EnvironmentOf = Callable[[Sequence[Record]], Mapping[str, tuple[str, ...]]]
"""Facts about hardware and software from the records of the arms."""
TURN = Turn(1, 1)
"""Every size once. How long it takes is in the spec."""


def run_collectives(plan: CollectivePlan, hooks: RunnerHooks, environment: EnvironmentOf) -> int:
    """Measure all turns of the plan and return the exit code; every turn is saved when it ends.

    0: no arm failed; 1: an arm failed; 130 or 143: interrupted.

    Args:
        plan: what to measure.
        hooks: from outside.
        environment: for collectives.json.

    Raises:
        TfdistError: a turn could not be saved.
    """
    run = _Sweep(plan, hooks, environment)
    with interruptions(run.news.put):
        try:
            run.measure()
        except InterruptedBenchError as interruption:
            run.stop(interruption.signal)
            return 128 + interruption.signal
        except OSError as error:
            what = f"cannot write to {plan.root} ({error.strerror or error})"
            raise TfdistError(f"{what}: free space, or choose another --out", ExitCode.FAILED) from None
        finally:
            run.stop(SIGTERM, STOPPED_BY)
    return ExitCode.FAILED if run.failed else ExitCode.SUCCESS


@dataclass
class _Sweep:
    plan: CollectivePlan
    hooks: RunnerHooks
    environment: EnvironmentOf
    news: "SimpleQueue[News]" = field(default_factory=SimpleQueue)
    memory: Memory = field(default_factory=Memory)
    records: dict[str, Record] = field(default_factory=dict)
    """The last one of each arm."""
    group: Group | None = None
    """Whose processes run."""
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        self.folder = SweepFolder(self.plan.root)
        self._save_header()

    @property
    def failed(self) -> dict[str, str]:
        """Arms that failed, with the reason."""
        bad = (RecordStatus.FAILED, RecordStatus.TIMEOUT)
        return {arm: record.reason for arm, record in self.records.items() if record.status in bad}

    def measure(self) -> None:
        """Measure all turns, in as many groups of arms as memory requires."""
        waiting = list(self.plan.arms.specs)
        number = 0
        while waiting:
            number += 1
            waiting = self._measure_group(waiting, number)

    def stop(self, signal: int, by: str = "") -> None:
        """Stop the processes that still run, and wait for their end."""
        if self.group is not None:
            self.group.stop(signal, by)

    def _measure_group(self, arms: Sequence[str], number: int) -> list[str]:
        """Measure the arms that fit into memory together; returns the others."""
        self.group = group = self._new_group(number)
        starts = [self._start_of(index, arm) for index, arm in enumerate(arms, start=1)]
        left = [start.arm for start in group.start(starts, self._slots(arms))]
        if left:
            self.hooks.progress.note(f"not enough memory for all arms at once; later: {', '.join(left)}")
        self._save_header()
        runs = [run for run in self.plan.runs if run.arm in arms and run.arm not in left]
        for _, of_round in groupby(runs, key=lambda run: run.round):
            for run in of_round:
                self._measure_turn(group, run)
        group.end()
        self.group = None
        return left

    def _measure_turn(self, group: Group, run: PlannedRun) -> None:
        if run.arm not in group.members:
            return
        started, total = time.monotonic(), len(self.plan.runs)
        left_s = self.spent.left_s(0, total - self.spent.turns, self.plan.options.turn_s)
        self.hooks.progress.turn(run, self.spent.turns + 1, total, left_s)
        parked = group.release(run.arm, TURN)
        if parked is None:
            return
        lines = lines_of(self._spec(run.arm), len(self.plan.arms.machines[run.arm]), run, parked)
        for line in lines:
            self.folder.append(line)
        self.spent.add_turn(time.monotonic() - started)
        if lines:
            self.hooks.progress.measured(run.arm, f"{max(lines, key=lambda line: line.bytes).busbw:.3g}")

    def _new_group(self, number: int) -> Group:
        pace = Pace(self.plan.options.turn_s, 0.0, 0.0)  # only for `Group.turn`
        return Group(number, pace, self.news, self.hooks.start_arm, self.hooks.progress, self._note, self.memory)

    def _start_of(self, number: int, arm: str) -> ArmStart:
        policy = replace(self.hooks.policy, timeout_s=TIMEOUT_S)
        run_dir = BenchPaths(self.plan.root).run(number, arm, 1)
        return ArmStart(arm, 1, self._spec(arm), (), self.plan.arms.machines[arm], run_dir, policy)

    def _slots(self, arms: Sequence[str]) -> int:
        """Processes that start at the same time: one for each core."""
        return max(2, *(len(combined(self.plan.arms.machines[arm]).cores) for arm in arms))

    def _spec(self, arm: str) -> CollectiveSpec:
        spec = self.plan.arms.specs[arm]
        assert isinstance(spec, CollectiveSpec)
        return spec

    def _note(self, record: Record, run_dir: Path) -> None:
        self.records[record.arm] = record
        if self.failed:
            self._save_header()

    def _save_header(self) -> None:
        plan = self.plan
        machines = max(plan.arms.machines.values(), key=len)
        header = SweepHeader(
            command=plan.options.command,
            started=plan.started,
            hosts=plan.hosts,
            rounds=plan.options.rounds,
            environment=self.environment(list(self.records.values())),
            link=slowest(self.hooks.links, list(machines)),
            not_measured={**plan.arms.refused, **self.failed},
        )
        self.folder.save_header(header)
