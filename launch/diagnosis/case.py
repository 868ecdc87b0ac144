"""The facts about the end of a job, from its history. Pure."""

import math
from dataclasses import dataclass
from functools import cached_property

from tfdist.launch.agents.inbox import AgentLost, Interrupted, Stopped
from tfdist.launch.agents.messages import Exited, Stuck
from tfdist.launch.diagnosis.evidence import (
    ErrorText,
    describe_ending,
    describe_stopped,
    exception_at_exit,
    exception_before,
    exit_code,
    is_peer_failure,
    last_lines,
    reported,
)
from tfdist.launch.diagnosis.history import (
    History,
    NotFinite,
    NotJoined,
    ReportedError,
    Stall,
    StartTimedOut,
    TimedOut,
)
from tfdist.launch.errors import SIGNALS, ExitCode
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.job import Job

StopReason = Interrupted | TimedOut | StartTimedOut | Stall | NotFinite
"""Why the launcher stops tasks that have not failed."""


@dataclass(frozen=True)
class Case:
    """What happened before the launcher stopped the tasks, and how each task ended."""

    history: History
    job: Job

    @cached_property
    def hosts(self) -> dict[str, str]:
        """The name of each task's host."""
        return {plan.task.name: plan.host.name for plan in self.job.plans}

    def place(self, task: str) -> str:
        """` on h2`; empty if all tasks run on this machine."""
        return "" if self.job.hosts == (LOCAL,) else f" on {self.hosts[task]}"

    @cached_property
    def _stop_index(self) -> int:
        entries = self.history.entries
        return next((at for at, entry in enumerate(entries) if isinstance(entry, Stopped)), len(entries))

    @cached_property
    def stopped_at(self) -> float:
        """When the launcher first stopped tasks; infinity if it never did."""
        entries = self.history.entries
        stopped = entries[self._stop_index] if self._stop_index < len(entries) else None
        return stopped.time if isinstance(stopped, Stopped) else math.inf

    @cached_property
    def stop_reason(self) -> StopReason | None:
        """Why the launcher stopped the tasks, if not because of a failure."""
        before = self.history.entries[: self._stop_index]
        return next((entry for entry in before if isinstance(entry, StopReason)), None)

    def _before(self, at: int, time: float, stop: int, stopped_at: float) -> bool:
        # What arrives after the stop may have happened before it, unless a user's request was the reason of the stop.
        return at < stop or (self.stop_reason is None and time < stopped_at)

    @cached_property
    def _stops(self) -> dict[str, tuple[int, float]]:
        """When each task was first stopped: index of the entry, and time.

        An agent that is ended stops its tasks. Its messages arrive in order, so their times do not matter.
        """
        stops: dict[str, tuple[int, float]] = {}
        for index, entry in enumerate(self.history.entries):
            if isinstance(entry, Stopped):
                stops = {**dict.fromkeys(entry.tasks, (index, entry.time)), **stops}
            if isinstance(entry, AgentLost):
                tasks = [task for task, host in self.hosts.items() if host == entry.host]
                stops = {**dict.fromkeys(tasks, (index, -math.inf)), **stops}
        return stops

    def _before_its_stop(self, at: int, entry: Exited | ReportedError) -> bool:
        index, stopped_at = self._stops.get(entry.task, (len(self.history.entries), math.inf))
        return self._before(at, entry.time, index, stopped_at)

    @cached_property
    def exits(self) -> dict[str, Exited]:
        """The exits, by task."""
        return {exit.task: exit for exit in self.history.select(Exited)}

    @cached_property
    def by_themselves(self) -> dict[str, Exited]:
        """The exits of tasks that the launcher had not stopped, by task, in the order of their times."""
        codes: tuple[int, ...] = ()
        if isinstance(self.stop_reason, Interrupted):  # a scheduler sends the signal that ends a job to all processes
            codes = (-self.stop_reason.signal, SIGNALS + self.stop_reason.signal)
        pairs = [(at, entry) for at, entry in enumerate(self.history.entries) if isinstance(entry, Exited)]
        exits = [exit for at, exit in pairs if exit.code not in codes and self._before_its_stop(at, exit)]
        return {exit.task: exit for exit in sorted(exits, key=lambda exit: exit.time)}

    @cached_property
    def failed_exits(self) -> dict[str, Exited]:
        """Those of them with another code than 0."""
        return {task: exit for task, exit in self.by_themselves.items() if exit.code != 0}

    @cached_property
    def reports(self) -> dict[str, ReportedError]:
        """The exceptions that tasks reported before the launcher stopped them."""
        pairs = [(at, entry) for at, entry in enumerate(self.history.entries) if isinstance(entry, ReportedError)]
        return {entry.task: entry for at, entry in pairs if self._before_its_stop(at, entry)}

    @cached_property
    def lost(self) -> tuple[AgentLost, ...]:
        """Lost agents of hosts whose tasks had not all exited with code 0."""
        done = {task for task, exit in self.exits.items() if exit.code == 0}
        hosts = {plan.host.name for plan in self.job.plans if plan.task.name not in done}
        entries = enumerate(self.history.entries)
        pairs = [(at, entry) for at, entry in entries if isinstance(entry, AgentLost) and entry.host in hosts]
        return tuple(entry for at, entry in pairs if self._before(at, entry.time, self._stop_index, self.stopped_at))

    @cached_property
    def not_joined(self) -> NotJoined | None:
        """A worker that its peers wait for."""
        return next(iter(self.history.select(NotJoined)), None)

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Tasks that others may wait for, in the order of the job: no evaluator."""
        needed = {*self.job.leading, *self.job.serving}
        return tuple(plan.task.name for plan in self.job.plans if plan.task.name in needed)

    @cached_property
    def succeeded(self) -> bool:
        """All leading tasks have exited with code 0, and none of them because the launcher stopped it."""
        codes = [exit.code for task, exit in self.by_themselves.items() if task in self.job.leading]
        return len(codes) == len(self.job.leading) and not any(codes) and self.not_joined is None

    @cached_property
    def early(self) -> dict[str, Exited]:
        """Serving tasks that exited with code 0 while a leading one still ran."""
        leaders = [self.by_themselves.get(task) for task in self.job.leading]
        end = max((exit.time if exit is not None and exit.code == 0 else math.inf for exit in leaders), default=0.0)
        serving = {task: self.by_themselves[task] for task in self.by_themselves if task in self.job.serving}
        return {task: exit for task, exit in serving.items() if exit.code == 0 and exit.time < end}

    def exception(self, task: str) -> ErrorText | None:
        """The exception that ended a task that has failed by itself."""
        exit = self.failed_exits.get(task)
        return exception_at_exit(task, exit.code if exit is not None else 1, self.history)

    def secondary(self, exit: Exited) -> bool:
        """Whether the errors of a task that failed are about another task's failure."""
        exception = self.exception(exit.task)
        if exception is not None:
            return is_peer_failure(exception.text)
        aborted = exit.code in (-6, 134)
        return (exit.code > 0 or aborted) and is_peer_failure("\n".join(self.history.tail(exit.task)))

    def ending(self, task: str) -> str:
        """How a task ended; empty if it succeeded, or if its end is unknown."""
        place = self.place(task)
        stuck = next((each for each in self.history.select(Stuck) if each.task == task), None)
        if stuck is not None and task not in self.exits:
            wait = f": it waits for {stuck.wait}" if stuck.wait else ""
            return f"could not be killed{place} (state {stuck.state or 'unknown'}{wait})"
        if task in self.failed_exits:
            exception = self.exception(task)
            return describe_ending(self.exits[task], place) + (f": {exception.headline}" if exception else "")
        if task in self.by_themselves:
            return ""
        if any(lost.host == self.hosts[task] for lost in self.lost):
            return f"was lost with {self.hosts[task]}"
        stopped = next((each for each in self.history.select(Stopped) if task in each.tasks), None)
        return describe_stopped(self.exits[task], stopped, place) if stopped and task in self.exits else ""


@dataclass(frozen=True)
class Diagnosis:
    """Who caused the failure."""

    reason: str
    exit_code: int
    culprits: tuple[str, ...] = ()
    """The tasks that the reason names, the first one first; empty if a host is to blame."""
    not_restarted: str = ""
    """Why a restart would not help; empty if it may."""


@dataclass(frozen=True)
class Failure:
    """A failure that no other task caused, according to its log."""

    task: str
    time: float
    ending: str
    """`exited with code 1 on h2`"""
    raised: ErrorText | None
    code: int
    last_line: str

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


def failures_of(case: Case) -> list[Failure]:
    """The tasks that failed without blaming another one, in the order of their failures.

    A task that the launcher stopped while it ended with the error of another one is among them.
    """
    failures = []
    for task in dict.fromkeys([*case.failed_exits, *case.reports]):
        exit = case.failed_exits.get(task)
        if exit is None and task not in case.by_themselves and not is_peer_failure(reported(case.reports[task]).text):
            failures.append(unfinished(case, task, reported(case.reports[task])))
        elif exit is not None and not case.secondary(exit):
            failures.append(failure_of(case, exit, case.exception(task)))
    errors = {failure.raised.headline for failure in failures if failure.raised is not None}
    for task in errors and case.hosts.keys() - case.by_themselves.keys() - case.reports.keys():
        raised = exception_before(math.inf, task, case.history)  # of one that was stopped while it ended
        if raised is not None and raised.headline in errors:
            failures.append(unfinished(case, task, raised))
    return sorted(failures, key=lambda failure: failure.time)


def failure_of(case: Case, exit: Exited, raised: ErrorText | None) -> Failure:
    """The failure of a task that has exited."""
    time = min(exit.time, raised.time) if raised is not None else exit.time
    lines = last_lines(exit.task, case.history, raised)
    ending = describe_ending(exit, case.place(exit.task))
    return Failure(exit.task, time, ending, raised, exit_code(exit.code), lines[-1] if lines else "")


def unfinished(case: Case, task: str, raised: ErrorText) -> Failure:
    """The failure of a task that raised an exception, and was stopped by tfdist before it had exited."""
    exit = case.exits.get(task)
    if exit is not None and 0 < exit.code < 128:
        return failure_of(case, exit, raised)
    return Failure(task, raised.time, f"failed{case.place(task)}", raised, ExitCode.FAILED, "")


def single(failure: Failure) -> Diagnosis:
    """The diagnosis that one task is to blame."""
    return Diagnosis(failure.sentence, failure.code, (failure.task,))
