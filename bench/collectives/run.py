"""Runs a measurement of collectives: starts its arms, releases one after the other, saves the lines of each turn."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path

from tfdist.bench.arm_process import ArmStart
from tfdist.bench.collectives.plan import CollectivePlan
from tfdist.bench.collectives.results import Line, SweepFolder, SweepHeader
from tfdist.bench.environment import environment_of
from tfdist.bench.folder import BenchPaths, only_writer
from tfdist.bench.group import FAILURES, Group
from tfdist.bench.plan import PlannedRun, incarnations, spread
from tfdist.bench.runner import RunnerHooks, TurnRunner
from tfdist.bench.suites.suite import Suite
from tfdist.bench.turns import Parked
from tfdist.jobs.plan import plan
from tfdist.launch.doctor.preflight import slowest
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.events import Turn
from tfdist.models.collectives.spec import CollectiveSpec
from tfdist.models.record import CollectiveCase, Record
from tfdist.strategies.catalog import CATALOG


def lines_of(spec: CollectiveSpec, hosts: int, run: PlannedRun, incarnation: int, parked: Parked) -> list[Line]:
    """What the tasks of an arm report about a turn: of each case the time of the slowest task, and all wrong elements.

    Raises:
        TfdistError: the tasks report different cases.
    """
    reports: list[list[CollectiveCase]] = [observed.get("collectives", []) for observed in parked.observed.values()]
    key = itemgetter("bytes", "tensors", "pack_bytes", "iterations")
    if len({tuple(map(key, report)) for report in reports}) > 1:
        raise TfdistError(f"{run.arm}: its tasks measured different sizes in a turn", ExitCode.FAILED)
    between = CATALOG[spec.strategy].all_reduce == "communication"
    return [
        Line(
            arm=run.arm,
            op=spec.op,
            hosts=hosts,
            ranks=spec.replicas,
            bytes=cases[0]["bytes"],
            tensors=cases[0]["tensors"],
            pack_bytes=cases[0]["pack_bytes"] or None,
            dtype=spec.gradient_dtype,
            round=run.round,
            iterations=cases[0]["iterations"],
            seconds=max(case["seconds"] for case in cases) / cases[0]["iterations"],
            wrong=sum(case["wrong"] for case in cases),
            communication=str(spec.communication) if between else None,
            cross_device=None if between else str(spec.cross_device),
            incarnation=incarnation,
        )
        for cases in zip(*reports, strict=True)
    ]


TURN = Turn(1, 1)
"""Every size once. How long it takes is in the spec."""


def run_collectives(plan: CollectivePlan, hooks: RunnerHooks) -> int:
    """Measure all turns of the plan and return the exit code; every turn is saved when it ends.

    0: no arm failed; 1: an arm failed; 130 or 143: interrupted.

    Raises:
        TfdistError: a turn could not be saved.
    """
    with only_writer(plan.root):
        run = _Sweep(root=plan.root, hooks=hooks, machines=plan.arms.machines, plan=plan)
        signal = run.run(run.measure, "free space, or choose another --out")
    if signal is not None:
        return 128 + signal
    return ExitCode.FAILED if run.failed else ExitCode.SUCCESS


@dataclass(kw_only=True)
class _Sweep(TurnRunner):
    plan: CollectivePlan
    records: dict[str, Record] = field(default_factory=dict)
    """The last one of each arm."""
    starts: list[tuple[str, ...]] = field(default_factory=list)
    """See SweepHeader."""

    def __post_init__(self) -> None:
        self.folder = SweepFolder(self.plan.root)
        self._save_header()

    @property
    def failed(self) -> dict[str, str]:
        """Arms that failed, with the reason."""
        return {arm: record.reason for arm, record in self.records.items() if record.status in FAILURES}

    def measure(self) -> None:
        """Measure all turns, with new processes in each incarnation; arms that do not fit into memory have another."""
        options = self.plan.options
        ends = spread(self.plan.options.rounds, len(self.plan.starts))
        for number, runs in enumerate(incarnations(self.plan.runs, ends)):
            self.renew_templates()
            arms = waiting = [arm for arm in self.plan.starts[number] if arm not in self.failed]
            while waiting:
                started = time.monotonic()
                group, left = self._start(waiting, options.seed + number)
                self.spent.add_start(time.monotonic() - started, again=waiting is not arms)
                for run in runs:
                    if run.arm in group.members:
                        self._measure_turn(group, run)
                self.end_group()
                waiting = left

    def _start(self, arms: Sequence[str], seed: int) -> tuple[Group, list[str]]:
        """Start an incarnation; returns it and the arms that do not fit. `seed`: of the order of sizes."""
        incarnation = len(self.starts) + 1
        policy = replace(self.hooks.policy, timeout_s=Suite.timeout_s)
        starts = []
        for index, arm in enumerate(arms, start=1):
            request = self.plan.arms.plans[arm].request
            request = replace(request, collective={**(request.collective or {}), "seed": seed})
            run_dir = BenchPaths(self.root).run(index, arm, incarnation)
            planned = plan(request, self.machines[arm])
            starts += [ArmStart(arm, incarnation, planned, run_dir, policy, self.templates)]
        group, left = self.start_group(incarnation, starts, self._note)
        self.starts.append(tuple(arm for arm in arms if arm not in left))
        self._save_header()
        return group, left

    def _measure_turn(self, group: Group, run: PlannedRun) -> None:
        started = time.monotonic()
        plan = self.plan
        turns_left = len(plan.runs) - self.spent.turns
        self.begin_turn(run, len(plan.starts) - self.spent.starts, turns_left, plan.options.turn_s)
        parked = group.release(run.arm, lambda _: TURN)
        if parked is None:
            return
        lines = lines_of(self._spec(run.arm), len(self.machines[run.arm]), run, group.number, parked)
        for line in lines:
            self.folder.append(line)
        self.spent.add_turn(time.monotonic() - started)
        if lines:
            self.hooks.progress.measured(run.arm, f"{max(lines, key=lambda line: line.bytes).busbw:.3g}")

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
            environment=environment_of(list(self.records.values())),
            link=slowest(self.hooks.links, list(machines)),
            not_measured={**plan.arms.refused, **self.failed},
            starts=tuple(self.starts),
            same_arms=plan.same_arms,
        )
        self.folder.save_header(header)
