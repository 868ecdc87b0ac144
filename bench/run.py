"""Runs each arm through the given function and saves every record as it comes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Protocol

from tfdist.bench.folder import BenchFile, BenchPaths
from tfdist.bench.plan import PlannedRun
from tfdist.bench.suites.arms import Arms
from tfdist.launch.agents.messages import Message
from tfdist.launch.doctor.links import Links, slowest
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import save_json
from tfdist.launch.machine import Machines
from tfdist.launch.supervise import OnMessage
from tfdist.models.record import BUSY_BEFORE, Record, RecordStatus
from tfdist.models.spec import TrainingSpec


class RunOne(Protocol):
    """One training in fresh processes; always returns a Record. `tfdist.models.plan.run_spec` is the real one."""

    def __call__(  # noqa: D102
        self,
        spec: TrainingSpec,
        run_dir: Path,
        *,
        machines: Machines,
        arm: str,
        round: int,
        timeout_s: float | None,
        listen: OnMessage,
    ) -> Record: ...


class Progress(Protocol):
    """Who is told how far the bench is."""

    def begin(self, run: PlannedRun, number: int, total: int, left_s: float | None) -> None:
        """Run `number` of `total` begins; all that is left, this run too, takes about `left_s` seconds."""

    def listen(self, message: Message) -> None:
        """What the run's own tasks say meanwhile."""

    def end(self, record: Record) -> None:
        """It is over."""


@dataclass(frozen=True)
class RunnerHooks:
    """What the runner touches of the world, passed in."""

    run_one: RunOne
    progress: Progress
    busy: Callable[[], float]
    """The share of this machine's cores in use now, 0..1."""
    links: Links = field(default_factory=dict)
    """The measured ways between neighbouring hosts."""


def run_bench(
    bench: BenchFile, arms: Arms, root: Path, runs: Sequence[PlannedRun], hooks: RunnerHooks
) -> tuple[Record, ...]:
    """Make these runs; the last record is `interrupted` if that is what ended the bench.

    What a run measured is saved before the next one begins.
    """
    _save_refusals(bench, arms, root)
    made: list[Record] = []
    order = BenchPaths(root).last_number()
    for number, run in enumerate(runs, start=1):
        hooks.progress.begin(run, number, len(runs), seconds_left(made, runs[number - 1 :]))
        record = _run(run, order + number, arms, bench, root, hooks)
        save_json(BenchPaths(root).record(record), record.to_json())
        made.append(record)
        hooks.progress.end(record)
        if record.status == "interrupted":
            break
    return tuple(made)


def seconds_left(made: Sequence[Record], runs: Sequence[PlannedRun]) -> float | None:
    """Seconds that `runs` take if each arm goes on as it did so far, and one that never ran like the mean.

    None before the first one is over.
    """
    times: dict[str, list[float]] = {}
    for record in made:
        if record.status == "ok":
            times.setdefault(record.arm, []).append(record.wall_s)
    if not times:
        return None
    mean = fmean(wall for walls in times.values() for wall in walls)
    return sum(fmean(times[run.arm]) if run.arm in times else mean for run in runs)


def _run(run: PlannedRun, order: int, arms: Arms, bench: BenchFile, root: Path, hooks: RunnerHooks) -> Record:
    spec, machines = arms.specs[run.arm], arms.machines[run.arm]
    run_dir = BenchPaths(root).run(order, run.arm, run.round)
    run_dir.mkdir(parents=True)
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
            timeout_s=bench.suite.timeout_s,
            listen=hooks.progress.listen,
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
    status = (
        RecordStatus.INTERRUPTED if exit_code > 128 else RecordStatus.FAILED
    )  # 128 + the signal that we got before any task ran
    return Record(run.arm, run.round, spec.to_json(), status, reason, exit_code)


def _save_refusals(bench: BenchFile, arms: Arms, root: Path) -> None:
    """A refused arm is one record in the first round, so that it is a row with its reason in every report.

    On a resumed bench what was refused then may run now; its old refusal goes.
    """
    for number, arm in enumerate(bench.suite.arms, start=1):
        path = BenchPaths(root).refused(number, arm.name)
        path.unlink(missing_ok=True)
        if arm.name in arms.refused:
            reason = arms.refused[arm.name]
            refused = Record(
                arm.name, 1, dict(arm.choices), RecordStatus.REFUSED, reason, ExitCode.USAGE, hosts=arm.hosts
            )
            save_json(path, refused.to_json())
