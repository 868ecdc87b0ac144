"""The facts about the end of a job, from its history. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from tfdist.launch.agents.inbox import AgentLost, Interrupted, Stopped
from tfdist.launch.agents.messages import Exited, Stuck
from tfdist.launch.diagnosis.evidence import describe_ending, describe_stopped, exception_at_exit
from tfdist.launch.diagnosis.history import ErrorText, History, NotJoined, ReportedError, StopReason
from tfdist.launch.errors import SIGNALS
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.job import Job
from tfdist.launch.text import listed

NEVER = (math.inf, math.inf)
"""Index and time of a stop that does not happen."""
Ending = TypeVar("Ending", Exited, ReportedError)


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

    def subject(self, tasks: Sequence[str]) -> str:
        """`worker-1 on h2 is`, `worker-0 and worker-1 are`: the start of a sentence."""
        who = listed(f"{task}{self.place(task)}" for task in tasks)
        return f"{who} {'is' if len(tasks) == 1 else 'are'}"

    def frozen(self, tasks: Iterable[str]) -> tuple[str, ...]:
        """Those of the tasks that a signal or a debugger has stopped."""
        states = self.history.states
        return tuple(task for task in tasks if task in states and states[task].state in ("T", "t"))

    def frozen_sentence(self, tasks: Sequence[str]) -> str:
        """`worker-1 on h2 is stopped (state T: SIGSTOP or a debugger)`."""
        return f"{self.subject(tasks)} stopped (state T: SIGSTOP or a debugger)"

    @cached_property
    def _stop(self) -> tuple[float, float]:
        """Index and time of the launcher's first stop."""
        entries = enumerate(self.history.entries)
        return next(((at, entry.time) for at, entry in entries if isinstance(entry, Stopped)), NEVER)

    @property
    def stopped_at(self) -> float:
        """When the launcher first stopped tasks; infinity if it never did."""
        return self._stop[1]

    @cached_property
    def stop_reason(self) -> StopReason | None:
        """Why the launcher stopped the tasks, if not because of a failure."""
        entries = enumerate(self.history.entries)
        return next((entry for at, entry in entries if at < self._stop[0] and isinstance(entry, StopReason)), None)

    def _before(self, at: int, time: float, stop: tuple[float, float]) -> bool:
        # What arrives after the stop may have happened before it, unless a user's request was the reason of the stop.
        return at < stop[0] or (self.stop_reason is None and time < stop[1])

    @cached_property
    def _stops(self) -> dict[str, tuple[float, float]]:
        """When each task was first stopped: index of the entry, and time.

        An agent that is ended stops its tasks. Its messages arrive in order, so their times do not matter.
        """
        stops: dict[str, tuple[float, float]] = {}
        for index, entry in enumerate(self.history.entries):
            match entry:
                case Stopped(tasks):
                    at = index, entry.time
                case AgentLost(host):
                    tasks, at = tuple(self._tasks_on.get(host, ())), (index, -math.inf)
                case _:
                    continue
            for task in tasks:
                stops.setdefault(task, at)
        return stops

    @cached_property
    def _tasks_on(self) -> dict[str, list[str]]:
        tasks: dict[str, list[str]] = {}
        for task, host in self.hosts.items():
            tasks.setdefault(host, []).append(task)
        return tasks

    def _unprompted(self, kind: type[Ending]) -> list[Ending]:
        """The entries of this kind about tasks that were not stopped before."""
        entries = [(at, entry) for at, entry in enumerate(self.history.entries) if isinstance(entry, kind)]
        return [entry for at, entry in entries if self._before(at, entry.time, self._stops.get(entry.task, NEVER))]

    @cached_property
    def exits(self) -> dict[str, Exited]:
        """The exits, by task."""
        return {exit.task: exit for exit in self.history.select(Exited)}

    @cached_property
    def by_themselves(self) -> dict[str, Exited]:
        """The exits of tasks that the launcher had not stopped, by task, in the order of their times."""
        reason = self.stop_reason  # a scheduler sends the signal that ends a job to all processes
        codes = (-reason.signal, SIGNALS + reason.signal) if isinstance(reason, Interrupted) else ()
        exits = [exit for exit in self._unprompted(Exited) if exit.code not in codes]
        return {exit.task: exit for exit in sorted(exits, key=lambda exit: exit.time)}

    @cached_property
    def failed_exits(self) -> dict[str, Exited]:
        """Those of them with a code other than 0."""
        return {task: exit for task, exit in self.by_themselves.items() if exit.code != 0}

    @cached_property
    def reports(self) -> dict[str, ReportedError]:
        """The exceptions that tasks reported before the launcher stopped them."""
        return {report.task: report for report in self._unprompted(ReportedError)}

    @cached_property
    def lost(self) -> tuple[AgentLost, ...]:
        """Lost agents of hosts whose tasks had not all exited with code 0."""
        done = {task for task, exit in self.exits.items() if exit.code == 0}
        hosts = {plan.host.name for plan in self.job.plans if plan.task.name not in done}
        entries = enumerate(self.history.entries)
        pairs = [(at, entry) for at, entry in entries if isinstance(entry, AgentLost) and entry.host in hosts]
        return tuple(entry for at, entry in pairs if self._before(at, entry.time, self._stop))

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
        end = 0.0  # of the leading tasks
        for task in self.job.leading:
            exit = self.by_themselves.get(task)
            end = max(end, exit.time) if exit is not None and exit.code == 0 else math.inf
        serving = {task: self.by_themselves[task] for task in self.by_themselves if task in self.job.serving}
        return {task: exit for task, exit in serving.items() if exit.code == 0 and exit.time < end}

    def exception(self, task: str) -> ErrorText | None:
        """The exception that ended a task that has failed by itself."""
        if task not in self._exceptions:
            exit = self.failed_exits.get(task)
            code = exit.code if exit is not None else 1
            self._exceptions[task] = exception_at_exit(task, code, self.history)
        return self._exceptions[task]

    @cached_property
    def _exceptions(self) -> dict[str, ErrorText | None]:
        return {}  # each is looked for once: a log has up to 100 lines

    def describe(self, exit: Exited) -> str:
        """`exited with code 1 on h2`."""
        return describe_ending(exit, self.place(exit.task))

    @cached_property
    def _stuck(self) -> dict[str, Stuck]:
        return {stuck.task: stuck for stuck in reversed(self.history.select(Stuck))}

    @cached_property
    def _lost_hosts(self) -> set[str]:
        return {lost.host for lost in self.lost}

    @cached_property
    def _stopped(self) -> dict[str, Stopped]:
        """The first stop of each task."""
        return {task: stopped for stopped in reversed(self.history.select(Stopped)) for task in stopped.tasks}

    def ending(self, task: str) -> str:
        """How a task ended; empty if it succeeded, or if its end is unknown."""
        place = self.place(task)
        stuck = self._stuck.get(task)
        if stuck is not None and task not in self.exits:
            wait = f": it waits for {stuck.wait}" if stuck.wait else ""
            return f"could not be killed{place} (state {stuck.state or 'unknown'}{wait})"
        if task in self.failed_exits:
            exception = self.exception(task)
            return self.describe(self.exits[task]) + (f": {exception.headline}" if exception else "")
        if task in self.by_themselves:
            return ""
        if self.hosts[task] in self._lost_hosts:
            return f"was lost with {self.hosts[task]}"
        stopped = self._stopped.get(task)
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
