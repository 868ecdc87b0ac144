"""Which task or host caused a failure, and the sentence that names it. Pure.

First-hand evidence (a task's own exception, a signal, a lost host) wins, the earliest first. Only if every task blames
another one are the tasks considered that have not failed.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfdist.launch.agents.messages import Exited, NotStarted
from tfdist.launch.diagnosis.case import Case, Diagnosis, Failure, failure_of, failures_of, single, unfinished
from tfdist.launch.diagnosis.evidence import exception_before, exit_code, is_peer_failure, named_peers, reported
from tfdist.launch.diagnosis.history import Freeze, History, NotFinite, NotJoined, Stall
from tfdist.launch.errors import ExitCode
from tfdist.launch.job import Job
from tfdist.launch.text import last_line, listed

SILENT_S = 5.0
"""A task that wrote nothing for this long, while others did, may be the one that they wait for."""


@dataclass(frozen=True)
class Victim:
    """A task that failed because of another one, according to its errors."""

    task: str
    time: float
    code: int
    text: str
    """Its errors, which may name peers."""


def victims_of(case: Case) -> list[Victim]:
    """All of them, in the order of their failures."""
    victims = []
    for task in dict.fromkeys([*case.failed_exits, *case.reports]):
        exit, raised = case.failed_exits.get(task), case.exception(task)
        text = raised.text if raised is not None else "\n".join(case.history.tail(task))
        if exit is not None or is_peer_failure(text):
            time = exit.time if exit is not None else case.reports[task].time
            code = exit_code(exit.code) if exit is not None else ExitCode.FAILED
            victims.append(Victim(task, time, code, text))
    return sorted(victims, key=lambda victim: victim.time)


def suspect(case: Case) -> Diagnosis | None:
    """The most likely culprit; None if no task failed."""
    victims = victims_of(case)
    if not victims:
        return None
    rules: tuple[Callable[[Case, Sequence[Victim]], Diagnosis | None], ...]
    rules = (raised_later, frozen, left_early, _named, _silent)
    diagnosis = next((found for rule in rules if (found := rule(case, victims)) is not None), None)
    if diagnosis is not None:
        return diagnosis
    first = victims[0].task
    exit = case.failed_exits.get(first)
    if exit is not None:
        return single(failure_of(case, exit, case.exception(first)))
    return single(unfinished(case, first, reported(case.reports[first])))


def _unharmed(case: Case, victims: Sequence[Victim]) -> list[str]:
    # Tasks that others may wait for, and that still ran when the launcher stopped them, or run now.
    ended = {victim.task for victim in victims} | set(case.by_themselves)
    return [task for task in case.needed if task not in ended]


def raised_later(case: Case, victims: Sequence[Victim]) -> Diagnosis | None:
    """A task with an exception of its own that still ran: it may take seconds to end TensorFlow's threads."""
    failures = []
    for task in _unharmed(case, victims):
        raised = exception_before(case.stopped_at, task, case.history)
        if raised is not None:
            failures.append(unfinished(case, task, raised))
    return single(min(failures, key=lambda failure: failure.time)) if failures else None


def frozen(case: Case, victims: Sequence[Victim]) -> Diagnosis | None:
    """Tasks that a signal or a debugger has stopped."""
    states = case.history.states
    tasks = [task for task in _unharmed(case, victims) if task in states and states[task].state in ("T", "t")]
    if not tasks:
        return None
    return Diagnosis(frozen_sentence(case, tasks), victims[0].code, tuple(tasks))


def frozen_sentence(case: Case, tasks: Sequence[str]) -> str:
    """`worker-1 on h2 is stopped (state T: SIGSTOP or a debugger)`."""
    who = listed([f"{task}{case.place(task)}" for task in tasks])
    return f"{who} {'is' if len(tasks) == 1 else 'are'} stopped (state T: SIGSTOP or a debugger)"


def left_early(case: Case, victims: Sequence[Victim]) -> Diagnosis | None:
    """A leading task that exited with code 0 before the first one failed."""
    left = [exit for exit in case.by_themselves.values() if exit.code == 0 and exit.time <= victims[0].time]
    task = next((exit.task for exit in left if exit.task in case.job.leading), None)
    if task is None:
        return None
    reason = f"{task} exited with code 0{case.place(task)} while {victims[0].task} still needed it"
    return Diagnosis(reason, victims[0].code, (task,))


def _named(case: Case, victims: Sequence[Victim]) -> Diagnosis | None:
    votes: dict[str, str] = {}
    candidates = _unharmed(case, victims)
    for victim in victims:
        named = [peer for peer in named_peers(victim.text, case.job.leading[0]) if peer in candidates]
        if named:
            votes[victim.task] = named[0]
    if not votes:
        return None
    ((task, _),) = Counter(votes.values()).most_common(1)
    voters = [voter for voter, peer in votes.items() if peer == task]
    state = case.history.states.get(task)
    waits = f" (state D: it waits for {state.wait or 'a device'})" if state is not None and state.state == "D" else ""
    reason = f"{task}{case.place(task)} no longer answered {listed(voters)}{waits}"
    return Diagnosis(reason, victims[0].code, (task,))


def _silent(case: Case, victims: Sequence[Victim]) -> Diagnosis | None:
    signs = {task: sign for task in _unharmed(case, victims) if (sign := case.history.last_sign(task))}
    if not signs:
        return None
    task = min(signs, key=lambda each: signs[each])
    first = victims[0]
    others = max(case.history.last_sign(plan.task.name) for plan in case.job.plans if plan.task.name != task)
    silence = min(first.time, others) - signs[task]
    if silence < SILENT_S:
        return None
    reason = f"{task}{case.place(task)} wrote no step or output for {silence:.0f} s before {first.task} failed"
    return Diagnosis(reason, first.code, (task,))


CLOSE_S, CLOSE_ON_ONE_HOST_S = 0.5, 0.1
"""Failures closer to each other cannot be ordered: clocks are known to within the latency of a message, and a process
exits some time after its exception."""


def find_culprit(case: Case) -> Diagnosis | None:
    """Who caused the failure of a job that has ended; None if no task failed by itself."""
    not_started = case.history.select(NotStarted)
    if not_started:
        first = not_started[0]
        tasks = tuple(each.task for each in not_started if each.reason == first.reason)
        place = case.place(first.task) if len(tasks) == 1 else ""
        return Diagnosis(f"{listed(tasks)} could not be started{place}: {first.reason}", ExitCode.NOT_STARTED, tasks)
    failures, early = failures_of(case), list(case.early.values())
    first_at = min((failure.time for failure in failures), default=math.inf)
    lost_at = min((lost.time for lost in case.lost), default=math.inf)
    if case.lost and lost_at <= first_at and not any(exit.time < lost_at for exit in early):
        return _lost(case)
    if early and early[0].time < first_at:
        return _early(case, early)
    if failures:
        return _failed(case, failures)
    for freeze in case.history.select(Freeze):
        return Diagnosis(frozen_sentence(case, freeze.tasks), ExitCode.FAILED, freeze.tasks)
    if case.not_joined is not None:
        task, waiting = case.not_joined.task, case.not_joined.waiting
        waits = f"{listed(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for it"
        reason = f"{task} exited with code 0{case.place(task)} before it joined the cluster; {waits}"
        return Diagnosis(reason, ExitCode.FAILED, (task,))
    return suspect(case)


def shows_cause(history: History, job: Job) -> bool:
    """Whether the cause of a failure is known: a failure that cannot be the consequence of another one."""
    case = Case(history, job)
    if any(isinstance(entry, NotStarted | Freeze | NotJoined) for entry in history.entries):
        return True
    if case.lost or case.early or failures_of(case) or isinstance(case.stop_reason, Stall | NotFinite):
        return True
    victims = victims_of(case)
    return bool(victims) and any(rule(case, victims) for rule in (raised_later, frozen, left_early))


def _failed(case: Case, failures: Sequence[Failure]) -> Diagnosis:
    """The first failure, those that are alike, or those that cannot be ordered."""
    first = failures[0]

    def is_close(other: Failure) -> bool:
        one_host = case.place(first.task) == case.place(other.task)
        return other.time - first.time <= (CLOSE_ON_ONE_HOST_S if one_host else CLOSE_S)

    unknown = first.raised is None and not first.last_line
    alike = [each for each in failures if each.kind == first.kind and (not unknown or is_close(each))]
    if len(alike) > 1:
        tasks, number = tuple(failure.task for failure in alike), len(case.job.plans)
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
    leaders = [task for task in case.job.leading if case.by_themselves.get(task) not in case.early.values()]
    needs = f"{listed(leaders)} still {'needs' if len(leaders) == 1 else 'need'}"
    tasks = tuple(exit.task for exit in early)
    them = "it" if len(tasks) == 1 else "them"
    place = case.place(tasks[0]) if len(tasks) == 1 else ""
    reason = f"{listed(tasks)} exited with code 0{place}, but {needs} {them}"
    return Diagnosis(f"{reason}: a script without server.join() is the usual cause", ExitCode.FAILED, tasks)
