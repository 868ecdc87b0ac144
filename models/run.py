"""Runs one training and builds the Record of its measurements. No TensorFlow."""

import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.agents.inbox import Inbox, Message, OnMessage
from tfdist.launch.agents.messages import Event
from tfdist.launch.cluster import task_order
from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.errors import ExitCode
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_command
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.supervision.rejoin import HostChoice
from tfdist.launch.text import replace_surrogates, shortened
from tfdist.launch.this_command import this_command
from tfdist.launch.typed_json import with_texts
from tfdist.models.record import Evaluation, RankRecord, Record, RecordStatus, TaskUsage, from_event
from tfdist.models.spec import TrainingSpec
from tfdist.models.strategy_check import StrategyFacts
from tfdist.strategies.choice import StrategyChoice

NO_STEP = "and measured no step: use tfdist.measure.steps() or tfdist.measure.Callback() in the program"
_PRIVATE = frozenset([
    "executable", "clock", "gpu_ids", "gpu_uuids", "gpu_processes", "gpus_hidden", "gpu_devices", "gpu_cores",
    "cuda_missing", "memory_free_bytes", "disk_free_bytes", "cores_in_use", "busy", "interfaces", "gpu_faults",
])  # fmt: skip
"""Facts about a host that are kept out of records, which may be published."""


class TrainingHosts(HostChoice, Protocol):
    """Plans a training again on other hosts."""

    @property
    def planned(self) -> tuple[Job, StrategyChoice]:
        """The last plan and its spec."""


def run_training(
    job: Job,
    spec: StrategyChoice,
    writer: RunWriter,
    policy: Policy,
    listeners: Mapping[str, OnMessage],
    *,
    fleet: Fleet | None = None,
    arm: str,
    paced: bool = False,
    hosts: TrainingHosts | None = None,
    before_start: Callable[[Inbox], None] = lambda _: None,
) -> tuple[Outcome, Record]:
    """Run the planned training of `spec`, by default with a fleet of its own. The last arguments are as for `launch`.

    Raises:
        TfdistError: no process was started.
    """
    from tfdist.launch.supervision.run_tasks import launch  # what watches tasks: a dry run is shown without it

    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    trains = type(spec) is not StrategyChoice  # otherwise it is the user's own program
    evaluations: list[Evaluation] = []
    facts = StrategyFacts()

    listeners = {
        "strategy check": facts.note,
        "evaluations": lambda message: evaluations.extend(evaluations_in(message)),
        **listeners,
    }
    outcome = launch(
        job,
        writer,
        policy,
        listeners,
        fleet=fleet,
        needs_tensorflow=trains,
        paced=paced,
        hosts=hosts,
        before_start=before_start,
    )
    if hosts is not None:
        job, spec = hosts.planned
    record = record_of(outcome, spec, job.leading, arm=arm, started=started, with_windows=not paced)
    return outcome, checked(replace(record, evaluations=tuple(evaluations)), facts, spec, job)


def checked(record: Record, facts: StrategyFacts, spec: StrategyChoice, job: Job) -> Record:
    """The record whose strategy is checked, if it is one of a user's own program."""
    if type(spec) is not StrategyChoice:
        return record
    state, note = facts.judge(spec, job)
    return replace(record, strategy_check=state, strategy_note=note)


def evaluations_in(message: Message) -> Iterator[Evaluation]:
    """The evaluation that a message reports, if it does."""
    match message:
        case Event(event={"event": "evaluation", "step": int() as step, "accuracy": float() as accuracy}):
            yield Evaluation(step, accuracy)


def record_of(
    outcome: Outcome, spec: StrategyChoice, measuring: Collection[str], *, arm: str, started: str, with_windows: bool
) -> Record:
    """The record of a finished job. A successful job fails if one of its `measuring` tasks sent no valid record."""
    ranks, problem = ranks_of(outcome.records)
    complete = {rank.task for rank in ranks if rank.windows or rank.resumed_at or not with_windows}
    missing = sorted(set(measuring) - complete)
    if missing:
        without = f"but sent no record{' with a timed window' if with_windows else ''}"
        without = without if isinstance(spec, TrainingSpec) else NO_STEP
        problem = problem or f"{shortened(missing)} exited with code 0 {without}"
    status = RecordStatus(outcome.status)
    reason = outcome.reason
    exit_code = outcome.exit_code
    if status is RecordStatus.OK and problem:
        status = RecordStatus.FAILED
        reason = problem
        exit_code = ExitCode.FAILED
    hosts = list(outcome.hosts.values())
    return Record(
        arm=arm,
        round=0,
        spec=spec.to_json(),
        status=status,
        reason=reason,
        exit_code=exit_code,
        ranks=ranks,
        usage={name: TaskUsage(exit.peak_memory_bytes, exit.cpu_s) for name, exit in outcome.exits.items()},
        hardware=hardware(hosts[0]) if hosts else {},
        command=redact_command(this_command()),
        started=started,
        wall_s=outcome.wall_s,
        run_dir=Path(outcome.run_dir).name,
        git_commit=_git_commit(),
        hosts=max(1, len(hosts)),
    )


def hardware(description: Mapping[str, Any]) -> dict[str, Any]:
    """A host's description for records: what stays the same from run to run, and may be published."""
    # an agent lists the least used cores first
    public = {key: value for key, value in description.items() if key not in _PRIVATE}
    public = with_texts(public, replace_surrogates)
    return {**public, "cores": sorted(public["cores"])} if "cores" in public else public


def ranks_of(records: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[RankRecord, ...], str]:
    """The valid records by role and index, and the problem of the first invalid one."""
    ranks = []
    for task in sorted(records, key=task_order):
        try:
            ranks.append(replace(from_event(records[task], RankRecord), task=task))
        except ValueError as error:
            return tuple(ranks), f"{task} sent an incomplete record: {error}"
    return tuple(ranks), ""


def _git_commit() -> str:
    """The commit of the working directory; empty outside a git repository."""
    with suppress(OSError, subprocess.CalledProcessError):
        return subprocess.check_output(["git", "rev-parse", "HEAD"], stderr=subprocess.DEVNULL, text=True).strip()
    return ""
