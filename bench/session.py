"""One `tfdist bench` from its options to its exit code: checked first, then run."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from tfdist.bench.estimate import seconds_left
from tfdist.bench.folder import BenchFile, BenchPaths, read_bench, slug
from tfdist.bench.plan import PlannedRun, interleave, remaining
from tfdist.bench.reading import read_folder
from tfdist.bench.run import RunnerHooks, run_bench
from tfdist.bench.suites.arms import Arms, resolve_arms
from tfdist.bench.suites.suite import Suite, load_suite, narrow
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.json_files import save_json
from tfdist.launch.machine import Machines, combined
from tfdist.models.record import Record, RecordStatus

_FAILURES = (RecordStatus.FAILED, RecordStatus.TIMEOUT)
"""Statuses that make a bench fail; a refused arm does not."""


@dataclass(frozen=True)
class BenchOptions:
    """The command line."""

    suite: str | None = None
    """None: hosts for several hosts, gpu on a machine with GPUs, else cpu."""
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
    before: tuple[Record, ...] = ()
    """The records of a resumed bench."""

    @property
    def to_run(self) -> tuple[PlannedRun, ...]:
        """In order."""
        return remaining(self.bench.plan, _completed(self.before), without=self.arms.refused)

    @property
    def estimate_s(self) -> float | None:
        """Wall seconds that `to_run` will take, as `estimate.seconds_left`."""
        return seconds_left(self.to_run, self.arms.specs, self.before)

    def count_left(self) -> int:
        """The number of planned runs that have no successful record in the folder now."""
        records = read_folder(self.root, "").records
        return len(remaining(self.bench.plan, _completed(records), self.arms.refused))


def _completed(records: Sequence[Record]) -> set[PlannedRun]:
    return {PlannedRun(record.round, record.arm) for record in records if record.status == RecordStatus.OK}


def prepare(options: BenchOptions, machines: Machines) -> Session:
    """Check everything that can be checked before a start; writes nothing and starts no process.

    Raises:
        TfdistError: an error in the suite, its arms or the folder.
    """
    if options.resume is not None:
        return _resumed(options, options.resume, machines)
    suite = _narrowed(load_suite(options.suite or default_suite(machines)), options)
    now = datetime.now(timezone.utc)
    root = options.out or Path("bench_results") / f"{now:%Y%m%dT%H%M%SZ}-{slug(suite.name)}"
    _check_new_folder(root)
    plan = interleave([arm.name for arm in suite.arms], suite.rounds, suite.seed)
    bench = BenchFile(suite, options.command, now.isoformat(timespec="seconds"), plan, _names(machines))
    return Session(root, bench, resolve_arms(suite.arms, machines, suite.preset))


def _names(machines: Machines) -> tuple[str, ...]:
    return tuple(host.name for host in machines)


def _narrowed(suite: Suite, options: BenchOptions) -> Suite:
    return narrow(suite, options.patterns, options.rounds, options.seed)


def default_suite(machines: Machines) -> str:
    """The name of the built-in suite for these machines."""
    if len(machines) > 1:
        return "hosts"
    return "gpu" if combined(machines).gpus else "cpu"


def _resumed(options: BenchOptions, root: Path, machines: Machines) -> Session:
    if options.out is not None and options.out.resolve() != root.resolve():
        raise TfdistError(f"--out {options.out} and --resume {root}: a resumed bench stays in its folder; omit --out")
    bench = read_bench(root)
    if bench is None:
        raise TfdistError(f"--resume {root}: no bench.json in it; give the folder of an interrupted bench")
    _check_same_suite(options, bench.suite, root)
    _check_same_hosts(_names(machines), bench.hosts, root)
    _check_writable(root, "--resume")
    records = read_folder(root, "").records
    arms = resolve_arms(bench.suite.arms, machines, bench.suite.preset)
    lost = next((run.arm for run in sorted(_completed(records)) if run.arm in arms.refused), None)
    if lost is not None:
        raise TfdistError(f"--resume {root}: {lost} was measured before and can no longer run: {arms.refused[lost]}")
    return Session(root, bench, arms, records)


def _check_same_suite(options: BenchOptions, suite: Suite, root: Path) -> None:
    """Options besides --resume must not change what is measured."""
    requested = _narrowed(load_suite(options.suite) if options.suite else suite, options)
    old, new = suite.to_json(), requested.to_json()
    differing = [key for key in old if old[key] != new[key] and key != "description"]
    if differing:
        raise TfdistError(
            f"--resume {root}: it was started with another {', '.join(differing)}; "
            f"give --resume alone, or start a new bench with --out"
        )


def _check_same_hosts(now: tuple[str, ...], before: tuple[str, ...], root: Path) -> None:
    """Rounds on different machines cannot be compared."""
    if now != before:
        fix = "omit --hosts" if before == (LOCAL.name,) else f"resume with --hosts {','.join(before)}"
        raise TfdistError(
            f"--resume {root}: it was started on {', '.join(before)} but would resume on {', '.join(now)}: {fix}"
        )


def _check_new_folder(root: Path) -> None:
    if root.is_dir() and any(root.iterdir()):
        raise TfdistError(f"--out {root} is not empty: choose a new folder, or continue its bench with --resume {root}")
    _check_writable(root, "--out")


def _check_writable(root: Path, option: str) -> None:
    existing = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise TfdistError(f"{option} {root}: {existing} is a file; choose another folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise TfdistError(f"{option} {root}: {existing} is not writable; choose another folder")


def run_session(session: Session, hooks: RunnerHooks) -> int:
    """Execute the runs that are left and return the exit code.

    0: no arm failed; 1: an arm failed; 130 or 143: interrupted. Every record is saved in each case.
    """
    try:
        save_json(BenchPaths(session.root).bench, session.bench.to_json())
    except OSError as error:
        raise TfdistError(f"cannot write to {session.root} ({error.strerror}): choose another --out") from None
    try:
        records = run_bench(session.bench, session.arms, session.root, session.to_run, hooks, session.before)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    if records and records[-1].status == RecordStatus.INTERRUPTED:
        return records[-1].exit_code or ExitCode.INTERRUPTED
    failed = any(record.status in _FAILURES for record in read_folder(session.root, "").records)
    return ExitCode.FAILED if failed else ExitCode.SUCCESS


def busy_now() -> float:
    """The share of all cores in use, 0..1, over half a second."""
    import psutil

    return float(psutil.cpu_percent(interval=0.5)) / 100
