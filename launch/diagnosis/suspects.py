"""Who caused a failure if every task that failed blames another one. Pure."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfdist.launch.diagnosis.case import Case
from tfdist.launch.diagnosis.endings import exit_code
from tfdist.launch.diagnosis.evidence import exception_before, is_peer_failure, named_peers, reported
from tfdist.launch.diagnosis.failures import Diagnosis, failure_of, single, unfinished
from tfdist.launch.errors import ExitCode
from tfdist.launch.text import listed

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
    rules = (raised_later, frozen, left_early, _named, _silent, _first_victim)
    return next(diagnosis for rule in rules if (diagnosis := rule(case, victims)) is not None)


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
    who = listed(voters)
    reason = f"{task}{case.place(task)} no longer answered {who}{waits}"
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


def _first_victim(case: Case, victims: Sequence[Victim]) -> Diagnosis:
    first = victims[0]
    exit = case.failed_exits.get(first.task)
    if exit is not None:
        return single(failure_of(case, exit, case.exception(first.task)))
    return single(unfinished(case, first.task, reported(case.reports[first.task])))
