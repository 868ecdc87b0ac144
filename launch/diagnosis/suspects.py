"""Who caused a failure if every task that failed blames another one. Pure."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfdist.launch.diagnosis.case import Case
from tfdist.launch.diagnosis.endings import exit_code
from tfdist.launch.diagnosis.evidence import exception_before, is_peer_failure, named_peers, reported
from tfdist.launch.diagnosis.failures import Verdict, failure_of, single, unfinished
from tfdist.launch.diagnosis.history import History
from tfdist.launch.errors import ExitCode
from tfdist.launch.text import listed

SILENT_S = 5.0
"""A task that wrote nothing for so long, while others did, may be the one that they wait for."""


@dataclass(frozen=True)
class Victim:
    """A task that failed because of another one, as it says."""

    task: str
    time: float
    code: int
    text: str
    """What it said of its peers."""


def victims_of(case: Case) -> list[Victim]:
    """All of them, in the order of their failures."""
    found = []
    for task in dict.fromkeys([*case.failed_exits, *case.reports]):
        exit, raised = case.failed_exits.get(task), case.exception(task)
        text = raised.text if raised is not None else "\n".join(case.history.tail(task))
        if exit is not None or is_peer_failure(text):
            time = exit.time if exit is not None else case.reports[task].time
            code = exit_code(exit.code) if exit is not None else ExitCode.FAILED
            found.append(Victim(task, time, code, text))
    return sorted(found, key=lambda victim: victim.time)


def suspect(case: Case) -> Verdict | None:
    """The most likely culprit; None if no task failed."""
    victims = victims_of(case)
    if not victims:
        return None
    looks: tuple[Callable[[Case, Sequence[Victim]], Verdict | None], ...]
    looks = (raised_later, frozen, left_early, _named, _silent, _first_victim)
    return next(verdict for look in looks if (verdict := look(case, victims)) is not None)


def _unharmed(case: Case, victims: Sequence[Victim]) -> list[str]:
    # The tasks that still ran when the launcher stopped them, or run now.
    ended = {victim.task for victim in victims} | set(case.by_themselves)
    return [plan.task.name for plan in case.job.plans if plan.task.name not in ended]


def raised_later(case: Case, victims: Sequence[Victim]) -> Verdict | None:
    """A task with an exception of its own that still ran: it may take seconds to end TensorFlow's threads."""
    found = []
    for task in _unharmed(case, victims):
        raised = exception_before(case.stopped_at, task, case.history)
        if raised is not None:
            found.append(unfinished(case, task, raised))
    return single(min(found, key=lambda failure: failure.time)) if found else None


def frozen(case: Case, victims: Sequence[Victim]) -> Verdict | None:
    """Tasks that a signal or a debugger has stopped."""
    states = case.history.states
    tasks = [task for task in _unharmed(case, victims) if task in states and states[task].state in ("T", "t")]
    if not tasks:
        return None
    who = listed([f"{task}{case.places.get(task, '')}" for task in tasks])
    reason = f"{who} {'is' if len(tasks) == 1 else 'are'} stopped (state T: SIGSTOP or a debugger)"
    return Verdict(reason, victims[0].code, tuple(tasks))


def left_early(case: Case, victims: Sequence[Victim]) -> Verdict | None:
    """A leading task that exited with code 0 before the first one failed."""
    left = [exit for exit in case.by_themselves.values() if exit.code == 0 and exit.time <= victims[0].time]
    task = next((exit.task for exit in left if exit.task in case.job.leading), None)
    if task is None:
        return None
    reason = f"{task} exited with code 0{case.places.get(task, '')} while {victims[0].task} still needed it"
    return Verdict(reason, victims[0].code, (task,))


def _named(case: Case, victims: Sequence[Victim]) -> Verdict | None:
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
    reason = f"{task}{case.places.get(task, '')} no longer answered {who}{waits}"
    return Verdict(reason, victims[0].code, (task,))


def _silent(case: Case, victims: Sequence[Victim]) -> Verdict | None:
    heard = {task: _last_sign(case.history, task) for task in _unharmed(case, victims)}
    heard = {task: time for task, time in heard.items() if time}
    if not heard:
        return None
    task = min(heard, key=lambda each: heard[each])
    first = victims[0]
    others = max(_last_sign(case.history, plan.task.name) for plan in case.job.plans if plan.task.name != task)
    silence = min(first.time, others) - heard[task]
    if silence < SILENT_S:
        return None
    reason = f"{task}{case.places.get(task, '')} wrote no step or output for {silence:.0f} s before {first.task} failed"
    return Verdict(reason, first.code, (task,))


def _last_sign(history: History, task: str) -> float:
    return max(history.outputs.get(task, 0.0), history.steps.get(task, (0, 0.0))[1])


def _first_victim(case: Case, victims: Sequence[Victim]) -> Verdict:
    first = victims[0]
    exit = case.failed_exits.get(first.task)
    if exit is not None:
        return single(failure_of(case, exit, case.exception(first.task)))
    return single(unfinished(case, first.task, reported(case.reports[first.task])))
