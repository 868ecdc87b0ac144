"""Why a job ended as it did, from the history of its messages. No I/O: tests replay histories."""

import signal
from collections.abc import Iterator

from tfdist.launch.agents.launcher_messages import Interrupted
from tfdist.launch.agents.messages import Stuck
from tfdist.launch.diagnosis.case import Case
from tfdist.launch.diagnosis.culprit import find_culprit
from tfdist.launch.diagnosis.endings import exit_code
from tfdist.launch.diagnosis.evidence import exception_before, last_lines
from tfdist.launch.diagnosis.failures import Verdict
from tfdist.launch.diagnosis.history import History, StartTimedOut, TimedOut
from tfdist.launch.diagnosis.outcome import Outcome, Status
from tfdist.launch.errors import ExitCode
from tfdist.launch.incompatibilities import hints
from tfdist.launch.job import Job
from tfdist.launch.text import listed


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
