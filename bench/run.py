"""Executes the runs of a bench and saves the record of each when it ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from tfdist.bench.folder import BenchFile, BenchPaths
from tfdist.bench.plan import PlannedRun
from tfdist.bench.progress import Progress
from tfdist.bench.suites.arms import Arms
from tfdist.launch.agents.launcher_messages import OnMessage
from tfdist.launch.doctor.links import Links, slowest
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import save_json
from tfdist.launch.machine import Machines
from tfdist.launch.policy import Policy
from tfdist.models.record import BUSY_BEFORE, Record, RecordStatus
from tfdist.models.spec import TrainingSpec


class RunOne(Protocol):
    """One training in fresh processes; always returns a Record. As `tfdist.models.run.run_spec`."""

    def __call__(  # noqa: D102
        self,
        spec: TrainingSpec,
        run_dir: Path,
        *,
        machines: Machines,
        arm: str,
        round: int,
        policy: Policy,
        listen: OnMessage,
    ) -> Record: ...


@dataclass(frozen=True)
class RunnerHooks:
    """What the runner needs from outside; tests pass fakes."""

    run_one: RunOne
    progress: Progress
    busy: Callable[[], float]
    """The share of this machine's cores in use now, 0..1."""
    links: Links = field(default_factory=dict)
    """The measured links between neighbouring hosts."""
    policy: Policy = field(default_factory=Policy)
    """Timeouts besides that of the suite."""


def run_bench(
    bench: BenchFile,
    arms: Arms,
    root: Path,
    runs: Sequence[PlannedRun],
    hooks: RunnerHooks,
) -> tuple[Record, ...]:
    """Execute these runs, each saved before the next one starts; after an interrupted one, stop."""
    _save_refusals(bench, arms, root)
    records: list[Record] = []
    last = BenchPaths(root).last_number()
    for number, run in enumerate(runs, start=1):
        hooks.progress.turn(run, number, len(runs), None)
        record = _run(run, last + number, arms, bench, root, hooks)
        save_json(BenchPaths(root).record(record), record.to_json())
        records.append(record)
        hooks.progress.note(f"{record.arm}, round {record.round}: {record.reason or record.status}")
        if record.status == RecordStatus.INTERRUPTED:
            break
    return tuple(records)


def _run(run: PlannedRun, order: int, arms: Arms, bench: BenchFile, root: Path, hooks: RunnerHooks) -> Record:
    spec, machines = arms.specs[run.arm], arms.machines[run.arm]
    assert isinstance(spec, TrainingSpec)
    run_dir = BenchPaths(root).run(order, run.arm, run.round)
    run_dir.mkdir(0o700, parents=True)
    busy: dict[str, float] = {}
    try:
        if any(host.local for host in machines):
            busy[BUSY_BEFORE] = round(hooks.busy(), 3)
        record = hooks.run_one(
            spec,
            run_dir,
            machines=machines,
            arm=run.arm,
            round=run.round,
            policy=replace(hooks.policy, timeout_s=bench.suite.timeout_s),
            listen=partial(hooks.progress.listen, run.arm),
        )
    except KeyboardInterrupt:
        record = _not_started(run, spec, "interrupted before any task was started", ExitCode.INTERRUPTED)
    except TfdistError as error:
        record = _not_started(run, spec, str(error), error.exit_code)
    return replace(
        record,
        order=order,
        command=bench.command,
        run_dir=str(run_dir.relative_to(root)),
        hardware={**record.hardware, **busy},
        hosts=len(machines),
        link=slowest(hooks.links, list(machines)),
    )


def _not_started(run: PlannedRun, spec: TrainingSpec, reason: str, exit_code: int) -> Record:
    # above 128: 128 + the signal that tfdist received before any task ran
    status = RecordStatus.INTERRUPTED if exit_code > 128 else RecordStatus.FAILED
    return Record(run.arm, run.round, spec.to_json(), status, reason, exit_code)


def _save_refusals(bench: BenchFile, arms: Arms, root: Path) -> None:
    """Save one record for each refused arm, so that reports show its reason; remove those of arms that now run."""
    for number, arm in enumerate(bench.suite.arms, start=1):
        path = BenchPaths(root).refused(number, arm.name)
        path.unlink(missing_ok=True)
        if arm.name in arms.refused:
            reason = arms.refused[arm.name]
            choices = dict(arm.choices)
            refused = Record(arm.name, 1, choices, RecordStatus.REFUSED, reason, ExitCode.USAGE, hosts=arm.hosts)
            save_json(path, refused.to_json())
