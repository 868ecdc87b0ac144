"""Why a job ended as it did, from the history of its messages. No I/O: tests replay histories."""

import signal
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfdist.launch.agents.messages import Exited, Interrupted, Stuck
from tfdist.launch.diagnosis.case import Case
from tfdist.launch.diagnosis.culprit import find_culprit
from tfdist.launch.diagnosis.endings import exit_code
from tfdist.launch.diagnosis.evidence import exception_before, last_lines
from tfdist.launch.diagnosis.failures import Verdict
from tfdist.launch.errors import ExitCode
from tfdist.launch.history import History, StartTimedOut, TimedOut
from tfdist.launch.incompatibilities import hints
from tfdist.launch.job import Job
from tfdist.launch.str_enum import StrEnum
from tfdist.launch.text import listed


class Status(StrEnum):
    """How a job ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Outcome:
    """The end of a job, as saved in outcome.json."""

    status: Status
    exit_code: int
    reason: str
    """One sentence; empty if the job succeeded."""
    culprit: str | None = None
    """The task that caused the failure."""
    culprits: tuple[str, ...] = ()
    """It and those that failed in the same way, or too close to it to be ordered."""
    log: tuple[str, ...] = ()
    """The culprit's traceback, or its last lines, without what TensorFlow logs on start-up."""
    hints: tuple[str, ...] = ()
    """What to do about known incompatibilities."""
    casualties: Mapping[str, str] = field(default_factory=dict)
    """How each other task ended that did not succeed, by task."""
    warnings: tuple[str, ...] = ()
    """Processes that are left over."""
    exits: Mapping[str, Exited] = field(default_factory=dict)
    wall_s: float = 0.0
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The `record` event of each task."""
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Each host's description from its agent."""
    run_dir: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": 1, **asdict(self)}


def diagnose(history: History, job: Job) -> Outcome:
    """The outcome of a job that has ended."""
    case = Case(history, job)
    status, verdict = _verdict(case)
    culprit = verdict.culprits[0] if verdict.culprits else None
    return Outcome(
        status,
        verdict.exit_code,
        verdict.reason,
        culprit=culprit,
        culprits=verdict.culprits,
        log=_log(case, culprit) if culprit is not None else (),
        hints=_hints(case, culprit) if culprit is not None else (),
        casualties={} if status is Status.OK else _casualties(case, verdict),
        warnings=tuple(_warnings(case)),
        exits=case.exits,
    )


def _verdict(case: Case) -> tuple[Status, Verdict]:
    if case.succeeded:
        return Status.OK, Verdict("", ExitCode.SUCCESS)
    verdict = find_culprit(case)
    if verdict is not None:
        return Status.FAILED, verdict
    match case.request:
        case Interrupted(number, by):
            code = ExitCode.INTERRUPTED if number == signal.SIGINT else exit_code(-number)
            reason = f"stopped by '{by}'" if by else f"interrupted by {signal.Signals(number).name}"
            return Status.INTERRUPTED, Verdict(reason, code)
        case TimedOut(timeout_s):
            return Status.TIMEOUT, Verdict(f"stopped after --timeout {timeout_s:g} s", ExitCode.TIMEOUT)
        case StartTimedOut(timeout_s, tasks):
            reason = f"{listed(tasks)} not started within --start-timeout {timeout_s:g} s"
            return Status.FAILED, Verdict(reason, ExitCode.START_TIMEOUT)
    endings = ((plan.task.name, case.ending(plan.task.name)) for plan in case.job.plans)
    reason = next((f"{task} {ending}" for task, ending in endings if ending), "the tasks ended without a result")
    return Status.FAILED, Verdict(reason, ExitCode.FAILED)


def _casualties(case: Case, verdict: Verdict) -> dict[str, str]:
    names = [plan.task.name for plan in case.job.plans if plan.task.name not in verdict.culprits]
    return {name: ending for name in names if (ending := case.ending(name))}


def _warnings(case: Case) -> Iterator[str]:
    for entry in case.history.entries:
        if isinstance(entry, Stuck):
            yield f"{entry.task} {case.ending(entry.task)}: its process is left over"


def _log(case: Case, culprit: str) -> tuple[str, ...]:
    if culprit in case.failed_exits:
        return last_lines(culprit, case.history, case.exception(culprit))
    found = exception_before(case.stopped_at, culprit, case.history)
    return last_lines(culprit, case.history, found, case.stopped_at)


def _hints(case: Case, culprit: str) -> tuple[str, ...]:
    texts = ("\n".join(case.history.tail(culprit, stream)) for stream in ("stderr", "stdout"))
    failed = case.reports.get(culprit)
    return hints("\n".join([*texts, failed.message if failed is not None else ""]))
