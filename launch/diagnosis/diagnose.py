"""Why a job ended as it did, from the history of its messages. No I/O: tests replay histories."""

import signal

from tfdist.launch.agents.inbox import AgentLost, Interrupted, Stopped
from tfdist.launch.agents.messages import Exited, Stuck
from tfdist.launch.diagnosis.behind import stack_lines, stalled
from tfdist.launch.diagnosis.case import Case, Diagnosis
from tfdist.launch.diagnosis.culprit import find_culprit
from tfdist.launch.diagnosis.evidence import exception_before, exit_code, last_lines
from tfdist.launch.diagnosis.history import (
    Freeze,
    History,
    NotFinite,
    NotJoined,
    Outcome,
    OwnConfig,
    ReportedError,
    Stall,
    StartTimedOut,
    Status,
    TimedOut,
)
from tfdist.launch.errors import ExitCode
from tfdist.launch.job import Job
from tfdist.launch.tensorflow_output import hints
from tfdist.launch.text import listed, shortened, signal_name


def first_failure(history: History) -> str:
    """`worker-1 failed`; the diagnosis at the end says why, and may find another culprit."""
    for entry in history.entries:
        match entry:
            case ReportedError(task):
                return f"{task} failed"
            case Exited(task, code) if code != 0:
                return f"{task} failed"
            case AgentLost(host):
                return f"lost {host}"
            case NotJoined(task):
                return f"{task} did not join the cluster"
            case Freeze(tasks):
                return f"{shortened(tasks)} stopped by a signal"
            case Stall(timeout_s):
                return f"no step for {timeout_s:g} s"
            case NotFinite(task, step, loss):
                return f"loss of {task} is {loss} at step {step}"
    return "a task has ended too early"


def diagnose(history: History, job: Job) -> Outcome:
    """The outcome of a job that has ended."""
    case = Case(history, job)
    status, diagnosis = _diagnosis(case)
    culprit = diagnosis.culprits[0] if diagnosis.culprits else None
    endings = {plan.task.name: case.ending(plan.task.name) for plan in job.plans}
    casualties = {task: ending for task, ending in endings.items() if ending and task not in diagnosis.culprits}
    left_over = [stuck.task for stuck in history.select(Stuck) if stuck.task not in case.exits]
    warnings = [f"{task} {endings[task]}: its process is left over" for task in left_over]
    if case.succeeded:
        warnings += [f"{task} {endings[task]}" for task in job.following if endings[task]]
    texts = ["\n".join(history.tail(culprit, stream)) for stream in ("stderr", "stdout")] if culprit else []
    if culprit in case.reports:
        texts.append(case.reports[culprit].message)
    keras3 = any(plan.program.env.get("TF_USE_LEGACY_KERAS") == "0" for plan in job.plans)
    return Outcome(
        status,
        diagnosis.exit_code,
        diagnosis.reason,
        culprit=culprit,
        culprits=diagnosis.culprits,
        log=_log(case, culprit) if culprit is not None else (),
        hints=(*hints("\n".join(texts), keras3), *dict.fromkeys(own.sentence for own in history.select(OwnConfig))),
        casualties={} if status is Status.OK else casualties,
        warnings=tuple(warnings),
        exits=case.exits,
        not_restarted=diagnosis.not_restarted,
        signal=case.stop_reason.signal if isinstance(case.stop_reason, Interrupted) else 0,
    )


def _diagnosis(case: Case) -> tuple[Status, Diagnosis]:
    if case.succeeded:
        return Status.OK, Diagnosis("", ExitCode.SUCCESS)
    diagnosis = find_culprit(case)
    if diagnosis is not None:
        return Status.FAILED, diagnosis
    match case.stop_reason:
        case Interrupted(number, by):
            code = ExitCode.INTERRUPTED if number == signal.SIGINT else exit_code(-number)
            reason = f"stopped by '{by}'" if by else f"interrupted by {signal_name(number)}"
            if any(case.exits[task].code == ExitCode.PREEMPTED for task in case.job.leading if task in case.exits):
                step = case.history.saved_step
                saved = "exited with code 42 (restart requested)" if step is None else f"saved step {step}"
                return Status.INTERRUPTED, Diagnosis(f"{reason}: {saved}", ExitCode.PREEMPTED)
            return Status.INTERRUPTED, Diagnosis(reason, code)
        case TimedOut(timeout_s):
            return Status.TIMEOUT, Diagnosis(f"stopped after --timeout {timeout_s:g} s", ExitCode.TIMEOUT)
        case StartTimedOut(timeout_s, tasks):
            reason = f"{listed(tasks)} not started within --start-timeout {timeout_s:g} s"
            return Status.FAILED, Diagnosis(reason, ExitCode.START_TIMEOUT)
        case Stall() as stall:
            return Status.FAILED, stalled(case, stall)
        case NotFinite(task, step, loss):
            reason = f"loss of {task}{case.place(task)} is {loss} at step {step}"
            return Status.FAILED, Diagnosis(reason, ExitCode.FAILED, (task,), "--set stop_on_nan=true ends the run")
    stopped = next((entry.reason for entry in case.history.select(Stopped) if entry.reason), "")
    if stopped:
        return Status.FAILED, Diagnosis(stopped, ExitCode.FAILED)
    endings = ((plan.task.name, case.ending(plan.task.name)) for plan in case.job.plans)
    reason = next((f"{task} {ending}" for task, ending in endings if ending), "the tasks ended without a result")
    return Status.FAILED, Diagnosis(reason, ExitCode.FAILED)


def _log(case: Case, culprit: str) -> tuple[str, ...]:
    if culprit in case.failed_exits:
        return last_lines(culprit, case.history, case.exception(culprit))
    if isinstance(case.stop_reason, Stall) and (lines := stack_lines(case, culprit)):
        return lines
    exception = exception_before(case.stopped_at, culprit, case.history)
    return last_lines(culprit, case.history, exception, case.stopped_at)
