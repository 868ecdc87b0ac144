"""One `tfdist bench` from what was asked to its exit code: prepared purely first, then run, then reported."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from tfdist.bench.folder import BenchFile, BenchPaths, read_bench, slug
from tfdist.bench.plan import PlannedRun, interleave, remaining
from tfdist.bench.reading import read_folder
from tfdist.bench.run import RunnerHooks, run_bench
from tfdist.bench.suites.arms import Arms, Resolve, resolve_arms
from tfdist.bench.suites.suite import Suite, load_suite, narrow
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.json_files import save_json
from tfdist.launch.machine import Machines, combined
from tfdist.models.record import Record

FAILURES = ("failed", "timeout")
"""Statuses that make a bench fail. A refused arm is not one: it is what the suite's author wanted to know."""


@dataclass(frozen=True)
class BenchOptions:
    """The command line."""

    suite: str | None = None
    """None: gpu if there are any, else cpu."""
    rounds: int | None = None
    patterns: tuple[str, ...] = ()
    out: Path | None = None
    resume: Path | None = None
    seed: int | None = None
    command: str = ""


@dataclass(frozen=True)
class Session:
    """A bench that is ready to run."""

    root: Path
    bench: BenchFile
    arms: Arms
    before: tuple[Record, ...]
    """What a resumed bench has already."""

    @property
    def to_run(self) -> tuple[PlannedRun, ...]:
        """In order."""
        return remaining(self.bench.plan, measured(self.before), without=self.arms.refused)


def measured(records: Sequence[Record]) -> set[PlannedRun]:
    """The runs that need not be made again."""
    return {PlannedRun(record.round, record.arm) for record in records if record.status == "ok"}


def prepare(asked: BenchOptions, machines: Machines, resolve: Resolve) -> Session:
    """Check all that can be checked; nothing is written and no process started.

    Raises:
        TfdistError: the suite, the arms or the folder will not do.
    """
    if asked.resume is not None:
        return _resumed(asked, asked.resume, machines, resolve)
    suite = narrow(load_suite(asked.suite or default_suite(machines)), asked.patterns, asked.rounds, asked.seed)
    now = datetime.now(timezone.utc)
    root = asked.out or Path("bench_results") / f"{now:%Y%m%dT%H%M%SZ}-{slug(suite.name)}"
    check_new_folder(root)
    plan = interleave([arm.name for arm in suite.arms], suite.rounds, suite.seed)
    bench = BenchFile(suite, asked.command, now.isoformat(timespec="seconds"), plan, names_of(machines))
    return Session(root, bench, resolve_arms(suite.arms, machines, suite.preset, resolve), ())


def names_of(machines: Machines) -> tuple[str, ...]:
    """The hosts' names, in order."""
    return tuple(host.name for host in machines)


def default_suite(machines: Machines) -> str:
    """The built-in suite for these machines."""
    if len(machines) > 1:
        return "hosts"
    return "gpu" if combined(machines).gpus else "cpu"


def _resumed(asked: BenchOptions, root: Path, machines: Machines, resolve: Resolve) -> Session:
    if asked.out is not None and asked.out.resolve() != root.resolve():
        raise TfdistError(
            f"--out {asked.out} and --resume {root}: a resumed bench stays in its folder; leave --out away"
        )
    bench = read_bench(root)
    if bench is None:
        raise TfdistError(f"--resume {root}: there is no bench.json in it; give the folder of a bench that broke off")
    _check_same_suite(asked, bench.suite, root)
    _check_same_hosts(names_of(machines), bench.hosts, root)
    _check_writable(root, "--resume")
    folder = read_folder(root, "")
    arms = resolve_arms(bench.suite.arms, machines, bench.suite.preset, resolve)
    lost = next((run.arm for run in sorted(measured(folder.records)) if run.arm in arms.refused), None)
    if lost is not None:
        raise TfdistError(
            f"{root}: {lost} was measured when the bench was begun and cannot be now: {arms.refused[lost]}"
        )
    return Session(root, bench, arms, folder.records)


def _check_same_suite(asked: BenchOptions, suite: Suite, root: Path) -> None:
    """What was asked besides --resume must not change what is measured."""
    wanted = narrow(load_suite(asked.suite) if asked.suite else suite, asked.patterns, asked.rounds, asked.seed)
    old, new = suite.to_json(), wanted.to_json()
    other = [key for key in old if old[key] != new[key]]
    if other:
        raise TfdistError(
            f"{root} was begun with other {' and '.join(other)} than is asked now: "
            f"resume with 'tfdist bench --resume' and the folder alone, or start a new bench with --out"
        )


def _check_same_hosts(now: tuple[str, ...], then: tuple[str, ...], root: Path) -> None:
    """Rounds of one arm on two machines are no rounds of one arm."""
    if now != then:
        mend = "leave --hosts away" if then == (LOCAL.name,) else f"resume with --hosts {','.join(then)}"
        raise TfdistError(f"{root} was begun on {', '.join(then)} and would go on on {', '.join(now)}: {mend}")


def check_new_folder(root: Path) -> None:
    """Refuse a folder that holds something, or cannot be made.

    Raises:
        TfdistError: it will not do.
    """
    if root.is_dir() and any(root.iterdir()):
        raise TfdistError(
            f"--out {root} is not empty: choose a new folder, or go on with --resume if a bench broke off in it"
        )
    _check_writable(root, "--out")


def _check_writable(root: Path, option: str) -> None:
    existing = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise TfdistError(f"{option} {root}: {existing} is a file; choose another folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise TfdistError(f"{option} {root}: {existing} cannot be written to; choose another folder")


def run_session(session: Session, hooks: RunnerHooks) -> int:
    """Make the missing runs and return the exit code; every record is in the folder, whatever ended it.

    0: no arm failed; 1: some did; 130 or 143: interrupted.
    """
    try:
        save_json(BenchPaths(session.root).bench, session.bench.to_json())
    except OSError as error:
        raise TfdistError(f"cannot write to {session.root} ({error.strerror}): choose another --out") from None
    try:
        made = run_bench(session.bench, session.arms, session.root, session.to_run, hooks)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    if made and made[-1].status == "interrupted":
        return made[-1].exit_code or int(ExitCode.INTERRUPTED)
    records = read_folder(session.root, "").records
    return int(any(record.status in FAILURES for record in records))


def missing(session: Session) -> int:
    """How many runs of the plan are still to be made, by what the folder holds now: failed ones too."""
    return len(remaining(session.bench.plan, measured(read_folder(session.root, "").records), session.arms.refused))


def busy_now() -> float:
    """The share of all cores in use, 0..1, watched for half a second."""
    import psutil

    return float(psutil.cpu_percent(interval=0.5)) / 100
