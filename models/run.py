"""Runs one training and makes the Record of what it measured. No TensorFlow."""

import contextlib
import subprocess
import sys
from collections.abc import Collection, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tfdist.launch.diagnose import Outcome, Status
from tfdist.launch.environment import command_shown
from tfdist.launch.machine import Machines, local_machines
from tfdist.launch.policy import Policy
from tfdist.launch.run import launch
from tfdist.launch.rundir import RunDir
from tfdist.launch.supervise import OnMessage
from tfdist.models.plan import plan_training
from tfdist.models.record import RankRecord, Record, TaskUsage, rank_from_json
from tfdist.models.spec import TrainingSpec

PRIVATE = (
    "executable",
    "clock",
    "gpu_ids",
    "gpus_hidden",
    "gpu_devices",
    "memory_free_bytes",
    "disk_free_bytes",
)
"""What a host says of itself that does not belong into a record, which may be published."""


def run_spec(
    spec: TrainingSpec,
    run_dir: Path,
    *,
    machines: Machines | None = None,
    arm: str,
    round: int = 0,
    timeout_s: float | None = None,
    listen: OnMessage = lambda _: None,
) -> Record:
    """Run one training in fresh processes and say what it measured, whatever came of it.

    Raises:
        TfdistError: no process was started.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    folder = RunDir(run_dir)
    job = plan_training(spec, machines or local_machines())
    started = datetime.now(timezone.utc)
    outcome = launch(job, folder, Policy(timeout_s=timeout_s), listen, needs_tensorflow=True)
    return record_of(outcome, spec, job.measuring, arm=arm, round=round, started=started)


def record_of(
    outcome: Outcome, spec: TrainingSpec, measuring: Collection[str], *, arm: str, round: int, started: datetime
) -> Record:
    """The record of a finished job, each of whose `measuring` tasks ought to have sent its part.

    A job that ended well but left out a rank's measurement has failed, with exit code 1.
    """
    ranks, problem = ranks_of(outcome.records)
    silent = sorted(set(measuring) - {rank.task for rank in ranks if rank.windows})
    if silent:
        problem = problem or f"{', '.join(silent)} ended well but sent no record with a timed window"
    bad = outcome.status is Status.OK and bool(problem)
    hosts = list(outcome.hosts.values())
    return Record(
        arm=arm,
        round=round,
        spec=spec.to_json(),
        status=str(Status.FAILED if bad else outcome.status),
        reason=problem if bad else outcome.reason,
        exit_code=1 if bad else outcome.exit_code,
        ranks=ranks,
        usage={name: TaskUsage(exit.peak_memory_bytes, exit.cpu_s) for name, exit in outcome.exits.items()},
        hardware={key: value for key, value in hosts[0].items() if key not in PRIVATE} if hosts else {},
        command=command_shown(["tfdist", *sys.argv[1:]]),
        started=started.isoformat(timespec="seconds"),
        wall_s=outcome.wall_s,
        run_dir=Path(outcome.run_dir).name,
        git_commit=git_commit(),
        hosts=max(1, len(hosts)),
    )


def ranks_of(records: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[RankRecord, ...], str]:
    """Every rank's measurement in order of task, and what was wrong with one of them, if any."""
    ranks = []
    for task in sorted(records, key=lambda name: (name.rpartition("-")[0], int(name.rpartition("-")[2]))):
        try:
            ranks.append(rank_from_json(records[task]))
        except (TypeError, KeyError) as error:
            return tuple(ranks), f"{task} sent a record that is not whole: {error}"
    return tuple(ranks), ""


def git_commit() -> str:
    """The commit of the working directory, if it is in a git repository."""
    with contextlib.suppress(OSError):
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        return asked.stdout.strip() if asked.returncode == 0 else ""
    return ""
