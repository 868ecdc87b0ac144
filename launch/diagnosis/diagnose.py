"""Why a job ended as it did, and which task or host caused a failure, from the history of its messages.

First-hand evidence (a task's own exception, a signal, a lost host) wins, the earliest first. Only if every task blames
another one are the tasks considered that have not failed. No I/O: tests replay histories.
"""

import math
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from tfdist.launch.agents.inbox import AgentLost, Interrupted, Stopped
from tfdist.launch.agents.messages import Exited, NotStarted, Stuck
from tfdist.launch.diagnosis.behind import stack_lines, stalled
from tfdist.launch.diagnosis.case import Case, Diagnosis
from tfdist.launch.diagnosis.evidence import exception_before, exit_code, is_peer_failure, last_lines, named_peers
from tfdist.launch.diagnosis.history import (
    ErrorText,
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
from tfdist.launch.errors import SIGNALS, ExitCode
from tfdist.launch.job import Job
from tfdist.launch.tensorflow_output import hints
from tfdist.launch.text import last_line, listed, shortened, signal_name


def first_failure(history: History) -> str:
    """`worker-1 failed`; the diagnosis at the end says why, and may find another culprit."""
    for entry in history.entries:
        match entry:
            case ReportedError(task=task):
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
    culprits = set(diagnosis.culprits)
    casualties = {task: ending for task, ending in endings.items() if ending and task not in culprits}
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
            reason = f"stopped by '{by}'" if by else f"interrupted by {signal_name(number)}"
            if any(case.exits[task].code == ExitCode.PREEMPTED for task in case.job.leading if task in case.exits):
                step = case.history.saved_step
                saved = "exited with code 42 (restart requested)" if step is None else f"saved step {step}"
                return Status.INTERRUPTED, Diagnosis(f"{reason}: {saved}", ExitCode.PREEMPTED)
            return Status.INTERRUPTED, Diagnosis(reason, exit_code(-number))
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
    reasons = (entry.reason for entry in case.history.select(Stopped))
    endings = (f"{task} {ending}" for task in case.hosts if (ending := case.ending(task)))
    reason = next(filter(None, chain(reasons, endings)), "the tasks ended without a result")
    return Status.FAILED, Diagnosis(reason, ExitCode.FAILED)


def _log(case: Case, culprit: str) -> tuple[str, ...]:
    if culprit in case.failed_exits:
        return last_lines(culprit, case.history, case.exception(culprit))
    if isinstance(case.stop_reason, Stall) and (lines := stack_lines(case, culprit)):
        return lines
    exception = exception_before(case.stopped_at, culprit, case.history)
    return last_lines(culprit, case.history, exception, case.stopped_at)


SILENT_S = 5.0
"""A task that wrote nothing for this long, while others did, may be the one that they wait for."""


@dataclass(frozen=True)
class Failure:
    """The failure of a task, according to its log."""

    task: str
    time: float
    """Time of its exception; without one, of its exit."""
    ended: float
    """Time of its exit; without one, of its exception."""
    ending: str
    """`exited with code 1 on h2`"""
    raised: ErrorText | None
    code: int
    last_line: str
    text: str
    """Its errors, which may name peers."""

    @property
    def sentence(self) -> str:
        """`worker-1 exited with code 1: ValueError: bad data`."""
        return f"{self.task} {self.ending}" + (f": {self.raised.headline}" if self.raised else "")

    @property
    def words(self) -> str:
        """The same without the task, in short."""
        return self.raised.headline if self.raised else self.ending.removeprefix("was ")

    @property
    def kind(self) -> tuple[str, int]:
        """Equal for tasks that failed alike."""
        said = "" if self.code == ExitCode.PREEMPTED else self.last_line
        return (self.raised.headline if self.raised else said), self.code


def failures_of(case: Case) -> tuple[list[Failure], list[Failure]]:
    """The failures that no other task caused, and those of the tasks whose errors are about another task's failure.

    Both are in order. A task that the launcher stopped while it ended with the error of another one is in the first.
    """
    failures, victims = [], []
    for task in dict.fromkeys([*case.failed_exits, *case.reports]):
        exit = case.failed_exits.get(task)
        raised = case.exception(task)
        failure = failure_of(case, task, raised)
        killed = raised is None and exit is not None and exit.code < 0 and exit.code != -signal.SIGABRT
        if not killed and is_peer_failure(failure.text):
            victims.append(failure)
        elif exit is not None or task not in case.by_themselves:
            failures.append(failure)
    errors = {failure.raised.headline for failure in failures if failure.raised is not None}
    for task in errors and case.hosts.keys() - case.by_themselves.keys() - case.reports.keys():
        raised = exception_before(math.inf, task, case.history)  # of one that was stopped while it ended
        if raised is not None and raised.headline in errors:
            failures.append(failure_of(case, task, raised))
    return sorted(failures, key=lambda failure: failure.time), sorted(victims, key=lambda victim: victim.ended)


def failure_of(case: Case, task: str, raised: ErrorText | None) -> Failure:
    """The failure of a task that has exited, or that raised an exception and was stopped before it had exited."""
    exit = case.failed_exits.get(task)
    if exit is None:
        raised = raised or case.reports[task]
        exit = case.exits.get(task)
        if exit is None or not 0 < exit.code < SIGNALS:
            at = raised.time
            ending = f"failed{case.place(task)}"
            return Failure(task, at, at, ending, raised, ExitCode.FAILED, "", raised.text)
    time = min(exit.time, raised.time) if raised is not None else exit.time
    lines = last_lines(task, case.history, raised)
    text = raised.text if raised is not None else "\n".join(case.history.tail(task))
    last_line = lines[-1] if lines else ""
    return Failure(task, time, exit.time, case.describe(exit), raised, exit_code(exit.code), last_line, text)


def single(failure: Failure) -> Diagnosis:
    """The diagnosis that one task is to blame."""
    return Diagnosis(failure.sentence, failure.code, (failure.task,))


def suspect(case: Case, victims: Sequence[Failure], certain: bool = False) -> Diagnosis | None:
    """The most likely culprit; None if no task failed, or if it must be `certain` and is not."""
    if not victims:
        return None
    rules = (raised_later, frozen, left_early, *(() if certain else (_named, _elsewhere, _silent)))
    found = next(filter(None, (rule(case, victims) for rule in rules)), None)
    return found or (None if certain else single(victims[0]))


def _unharmed(case: Case, victims: Sequence[Failure]) -> list[str]:
    # Tasks that others may wait for, and that still ran when the launcher stopped them, or run now.
    ended = {victim.task for victim in victims} | set(case.by_themselves)
    return [task for task in case.needed if task not in ended]


def raised_later(case: Case, victims: Sequence[Failure]) -> Diagnosis | None:
    """A task with an exception of its own that still ran: it may take seconds to end TensorFlow's threads."""
    found = {task: exception_before(case.stopped_at, task, case.history) for task in _unharmed(case, victims)}
    failures = [failure_of(case, task, raised) for task, raised in found.items() if raised is not None]
    return single(min(failures, key=lambda failure: failure.time)) if failures else None


def frozen(case: Case, victims: Sequence[Failure]) -> Diagnosis | None:
    """Tasks that a signal or a debugger has stopped."""
    tasks = case.frozen(_unharmed(case, victims))
    return Diagnosis(case.frozen_sentence(tasks), victims[0].code, tasks) if tasks else None


def left_early(case: Case, victims: Sequence[Failure]) -> Diagnosis | None:
    """A leading task that exited with code 0 before the first one failed."""
    left = [exit for exit in case.by_themselves.values() if exit.code == 0 and exit.time <= victims[0].ended]
    task = next((exit.task for exit in left if exit.task in case.job.leading), None)
    if task is None:
        return None
    reason = f"{task} exited with code 0{case.place(task)} while {victims[0].task} still needed it"
    return Diagnosis(reason, victims[0].code, (task,))


def _named(case: Case, victims: Sequence[Failure]) -> Diagnosis | None:
    candidates = set(_unharmed(case, victims))
    named = {victim.task: named_peers(victim.text, case.job.leading[0]) for victim in victims}
    votes = {task: peer for task, peers in named.items() if (peer := next(filter(candidates.__contains__, peers), ""))}
    if not votes:
        return None
    ((task, _),) = Counter(votes.values()).most_common(1)
    voters = [voter for voter, peer in votes.items() if peer == task]
    state = case.history.states.get(task)
    waits = f" (state D: it waits for {state.wait or 'a device'})" if state is not None and state.state == "D" else ""
    reason = f"{task}{case.place(task)} no longer answered {listed(voters)}{waits}"
    return Diagnosis(reason, victims[0].code, (task,))


def _elsewhere(case: Case, victims: Sequence[Failure]) -> Diagnosis | None:
    """A peer that the error names, which another launcher runs. The traceback is that of the task that runs here."""
    addresses = {
        f"{role}-{index}": address
        for role, of_role in case.job.cluster.addresses.items()
        for index, address in enumerate(of_role)
        if f"{role}-{index}" not in case.hosts
    }
    first = victims[0]
    named = named_peers(first.text, "chief-0" if "chief-0" in addresses else "worker-0")
    peer = next(filter(addresses.__contains__, named), None)
    if peer is None:
        return None
    error = f": {first.raised.headline}" if first.raised else ""
    reason = f"{first.task} {first.ending}: {peer} ({addresses[peer]}) no longer answered{error}"
    return Diagnosis(reason, first.code, (first.task,))


def _silent(case: Case, victims: Sequence[Failure]) -> Diagnosis | None:
    signs = {task: sign for task in _unharmed(case, victims) if (sign := case.history.last_sign(task))}
    if not signs:
        return None
    task = min(signs, key=lambda each: signs[each])
    first = victims[0]
    others = max(case.history.last_sign(plan.task.name) for plan in case.job.plans if plan.task.name != task)
    silence = min(first.ended, others) - signs[task]
    if silence < SILENT_S:
        return None
    reason = f"{task}{case.place(task)} wrote no step or output for {silence:.0f} s before {first.task} failed"
    return Diagnosis(reason, first.code, (task,))


CLOSE_S, CLOSE_ON_ONE_HOST_S = 0.5, 0.1
"""Failures closer to each other cannot be ordered: clocks are known to within the latency of a message, and a process
exits some time after its exception."""


def find_culprit(case: Case, certain: bool = False) -> Diagnosis | None:
    """Who caused the failure of a job; None if no task failed by itself, or if it must be `certain` and is not."""
    not_started = case.history.select(NotStarted)
    if not_started:
        first = not_started[0]
        tasks = tuple(each.task for each in not_started if each.reason == first.reason)
        place = case.place(first.task) if len(tasks) == 1 else ""
        return Diagnosis(f"{listed(tasks)} could not be started{place}: {first.reason}", ExitCode.NOT_STARTED, tasks)
    failures, victims = failures_of(case)
    early = list(case.early.values())
    first_at = min((failure.time for failure in failures), default=math.inf)
    lost_at = min((lost.time for lost in case.lost), default=math.inf)
    if case.lost and lost_at <= first_at and not any(exit.time < lost_at for exit in early):
        return _lost(case)
    if early and early[0].time < first_at:
        return _early(case, early)
    if failures:
        return _failed(case, failures)
    for freeze in case.history.select(Freeze):
        return Diagnosis(case.frozen_sentence(freeze.tasks), ExitCode.FAILED, freeze.tasks)
    if case.not_joined is not None:
        task, waiting = case.not_joined.task, case.not_joined.waiting
        waits = f"{listed(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for it"
        reason = f"{task} exited with code 0{case.place(task)} before it joined the cluster; {waits}"
        return Diagnosis(reason, ExitCode.FAILED, (task,))
    return suspect(case, victims, certain)


def shows_cause(history: History, job: Job) -> bool:
    """Whether the cause of a failure is known: a failure that cannot be the consequence of another one."""
    case = Case(history, job)
    return isinstance(case.stop_reason, Stall | NotFinite) or find_culprit(case, certain=True) is not None


def _failed(case: Case, failures: Sequence[Failure]) -> Diagnosis:
    """The first failure, those that are alike, or those that cannot be ordered."""
    first = failures[0]

    def is_close(other: Failure) -> bool:
        one_host = case.place(first.task) == case.place(other.task)
        return other.time - first.time <= (CLOSE_ON_ONE_HOST_S if one_host else CLOSE_S)

    unknown = first.raised is None and not first.last_line
    alike = [each for each in failures if each.kind == first.kind and (not unknown or is_close(each))]
    if len(alike) > 1:
        tasks = tuple(failure.task for failure in alike)
        number = len(case.job.plans)
        every = "both tasks" if number == 2 else f"all {number} tasks"
        who = every if len(tasks) == number else listed(tasks)
        words = first.words if first.raised else first.words.replace(case.place(first.task), "", 1)
        return Diagnosis(f"{who} failed alike: {words}", first.code, tasks)
    close = list(filter(is_close, failures))
    if len(close) > 1:
        names = listed(f"{each.task}{case.place(each.task)}" for each in close)
        seconds = max(0.1, close[-1].time - first.time)
        reason = f"{names} failed within {seconds:.1f} s: {'; '.join(each.words for each in close[:4])}"
        return Diagnosis(reason, first.code, tuple(each.task for each in close))
    return single(first)


def _lost(case: Case) -> Diagnosis:
    reasons = {lost.host: last_line(lost.reason) for lost in case.lost}
    if len(set(reasons.values())) == 1:
        agents = "agent" if len(reasons) == 1 else "agents"
        reason = f"lost the {agents} on {listed(tuple(reasons))}: {next(iter(reasons.values()))}"
    else:
        reason = "lost the agents on " + listed([f"{host} ({why})" for host, why in reasons.items()])
    return Diagnosis(reason, ExitCode.HOST_LOST)


def _early(case: Case, early: Sequence[Exited]) -> Diagnosis:
    leaders = case.job.leading
    needs = f"{listed(leaders)} still {'needs' if len(leaders) == 1 else 'need'}"
    tasks = tuple(exit.task for exit in early)
    place, them = (case.place(tasks[0]), "it") if len(tasks) == 1 else ("", "them")
    reason = f"{listed(tasks)} exited with code 0{place}, but {needs} {them}"
    return Diagnosis(f"{reason}: a script without server.join() is the usual cause", ExitCode.FAILED, tasks)
