"""The tasks of a running job: the phase of each, and the messages that start, inspect and stop them."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

from tfdist.launch.agent_program.system import event_time
from tfdist.launch.agents.channel import Channel
from tfdist.launch.agents.fleet import OnReply, Requests
from tfdist.launch.agents.inbox import Message, Note, OnMessage, Stopped
from tfdist.launch.agents.messages import (
    DumpStacks,
    Exited,
    Inspect,
    Inspected,
    NotStarted,
    Reply,
    Start,
    Stop,
    Stuck,
)
from tfdist.launch.diagnosis.history import History, ProcessState
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy

Action = Callable[[float], float | None]
"""Called with the monotonic time when it is due; returns when it is due again, or None."""


class Deadlines(dict[Action, float]):
    """Actions with the monotonic times at which they are due."""

    def cancel(self, *actions: Action) -> None:
        """Do not do these."""
        for action in actions:
            self.pop(action, None)

    def next(self) -> float:
        """When the first action is due; infinity without any."""
        return min(self.values(), default=math.inf)

    def run_due(self, now: float) -> None:
        """Do what is due, in the order of the times. An action may set and cancel others."""
        for action in sorted(self, key=self.__getitem__):
            if self.get(action, math.inf) <= now:
                self.run(action, now)

    def run(self, action: Action, now: float) -> None:
        """Do it now, and not when it was due."""
        self.pop(action, None)
        again = action(now)
        if again is not None:
            self[action] = again


class Phase(Enum):
    """Where a task is in its present attempt."""

    WAITING = auto()
    """It will be started, unless all are stopped before."""
    ENDING = auto()
    """It will be started once the process of the attempt before has ended."""
    STARTING = auto()
    """Its agent was asked to start it."""
    RUNNING = auto()
    ENDED = auto()
    """It has exited or was lost with its host, or there never was a process."""
    SUCCEEDED = auto()
    """It leads the job and has exited with code 0."""


_BEFORE_START = (Phase.WAITING, Phase.ENDING, Phase.STARTING)
_WITH_PROCESS = (Phase.ENDING, Phase.STARTING, Phase.RUNNING)


@dataclass
class TaskGroup:
    """The tasks that run together, for all parts of a supervisor. Phases and attempts are changed only by its methods,
    and messages to agents are sent only by them.
    """

    job: Job
    channels: Mapping[str, Channel]
    """Channels by task."""
    policy: Policy
    requests: Requests = field(default_factory=Requests)
    announce: OnMessage = lambda _: None
    """Called with the launcher's own messages."""
    isolate: Callable[[str, Callable[[], None]], None] = lambda _, act: act()
    """Calls what only watches the job, named by the text, so that its failure is no end: `Listeners.isolate`."""
    history: History = field(default_factory=History)
    deadlines: Deadlines = field(default_factory=Deadlines)
    stopped: bool = field(default=False, init=False)
    """All tasks have been stopped; none is started again."""
    _attempts: dict[str, int] = field(init=False)
    """The present attempt of each task."""
    _phases: dict[str, Phase] = field(init=False)
    _number: Counter[Phase] = field(init=False)
    """Tasks in each phase: what is asked about all of them after each message must not look at each."""

    def __post_init__(self) -> None:
        self._attempts = dict.fromkeys(self.channels, 0)
        self._phases = dict.fromkeys(self.channels, Phase.WAITING)
        self._number = Counter(self._phases.values())

    def again(self, job: Job, channels: Mapping[str, Channel]) -> "TaskGroup":
        """A group of the tasks of the next attempt of a whole job, which knows nothing about this one."""
        return TaskGroup(job, channels, self.policy, self.requests, self.announce, self.isolate)

    # --- the state

    def attempt(self, task: str) -> int:
        """The number of the task's present attempt."""
        return self._attempts.get(task, 0)

    @property
    def running(self) -> Set[str]:
        """Tasks that have a process, or will get one as soon as their agent has read the request."""
        return {task for task, phase in self._phases.items() if phase in _WITH_PROCESS}

    @property
    def any_running(self) -> bool:
        """Whether a task has a process, or will get one."""
        return any(self._number[phase] for phase in _WITH_PROCESS)

    def has_process(self, task: str) -> bool:
        """Whether this task has a process, or will get one."""
        return self._phases[task] in _WITH_PROCESS

    @property
    def leaders(self) -> list[str]:
        """The leading tasks that run."""
        return [task for task in self.job.leading if self._phases[task] in _WITH_PROCESS]

    @property
    def finished(self) -> Set[str]:
        """Leading tasks that exited with code 0."""
        return self._in(Phase.SUCCEEDED)

    @property
    def number_finished(self) -> int:
        """Number of leading tasks that exited with code 0."""
        return self._number[Phase.SUCCEEDED]

    @property
    def succeeded(self) -> bool:
        """Whether all leading tasks have exited with code 0."""
        return self.number_finished == len(self.job.leading)

    @property
    def starting(self) -> Set[str]:
        """Tasks whose agents have not answered the request to start them."""
        return self._in(Phase.STARTING)

    @property
    def all_started(self) -> bool:
        """Whether no task is still to be started."""
        return not any(self._number[phase] for phase in _BEFORE_START)

    def has_started(self, task: str) -> bool:
        """Whether the process of the task's present attempt runs."""
        return self._phases[task] is Phase.RUNNING

    def of_host(self, host: str) -> set[str]:
        """The tasks on the host of that name."""
        return set(self._on_host.get(host, ()))

    @cached_property
    def _on_host(self) -> Mapping[str, list[str]]:
        on_host: dict[str, list[str]] = {}
        for task, channel in self.channels.items():
            on_host.setdefault(channel.host.name, []).append(task)
        return on_host

    def _in(self, phase: Phase) -> Set[str]:
        return {task for task, each in self._phases.items() if each is phase}

    # --- what changes it

    def _enter(self, phase: Phase, tasks: Iterable[str]) -> None:
        for task in tasks:
            self._number[self._phases[task]] -= 1
            self._number[phase] += 1
            self._phases[task] = phase

    def start(self, tasks: Collection[str]) -> None:
        """Start the present attempts of these tasks."""
        for plan in [plan for plan in self.job.plans if plan.task.name in tasks]:
            task = plan.task.name
            argv = self.job.command(plan)
            cwd = plan.program.cwd
            number = self.attempt(task)
            env = {**self.job.environment(plan), "TFDIST_ATTEMPT": str(self.job.first_attempt + number)}
            port = self.job.cluster.port(plan.task)
            self._enter(Phase.STARTING, [task])
            self.channels[task].send(Start(task, argv, env, cwd, plan.cores, port, attempt=number))

    def note_start(self, task: str) -> None:
        """Take note that the process of the present attempt was started."""
        if self._phases[task] is Phase.STARTING:
            self._enter(Phase.RUNNING, [task])

    def note_end(self, task: str, code: int | None = None) -> None:
        """Take note that the process of the present attempt has ended; `code`: its exit code, if it was started."""
        if self._phases[task] in (Phase.STARTING, Phase.RUNNING):
            succeeded = code == 0 and task in self.job.leading
            self._enter(Phase.SUCCEEDED if succeeded else Phase.ENDED, [task])

    def note_end_before(self, task: str) -> None:
        """Take note that the process of an earlier attempt has ended: the present one may be started."""
        if self._phases[task] is Phase.ENDING:
            self._enter(Phase.WAITING, [task])

    def lose(self, tasks: Collection[str]) -> None:
        """Expect nothing more of these tasks: their host is lost, or their agent did not start them."""
        self._enter(Phase.ENDED, tasks)

    def renew(self, tasks: Collection[str], attempt: int) -> None:
        """Expect this attempt of the tasks next, and forget what is known about the one before."""
        for task in tasks:
            self._attempts[task] = attempt
            self._enter(Phase.ENDING if self.has_process(task) else Phase.WAITING, [task])
        self.history.forget(tasks)

    def note_stop(self, tasks: Collection[str], grace_s: float, reason: str) -> None:
        """Announce that these tasks are being stopped for good: their exits are not failures, and none starts again."""
        self.stopped = True
        stopped = Stopped(tuple(sorted(tasks)), grace_s, event_time(), reason)
        self.history.entries.append(stopped)
        if stopped.tasks:
            self.announce(stopped)

    def stop(self, tasks: Collection[str], grace_s: float, keeps_barrier: bool = False) -> None:
        """Send SIGTERM to these tasks, and SIGKILL `grace_s` later."""
        for channel, names in self._by_channel(tasks).items():
            channel.send(Stop(names, grace_s, keeps_barrier))

    # --- questions and notes

    def inspect(self, gpus: bool = False) -> None:
        """Ask for the states of the running processes; the answers go into the history."""
        for channel, tasks in self._by_channel(self.running).items():
            self.requests.send(channel, Inspect(tasks, gpus), self._keep_states)

    def count(self, on_reply: OnReply) -> None:
        """Ask for what may slow each running task down. `on_reply` gets each host's answer."""
        for channel, tasks in self._by_channel(self.running).items():
            self.requests.send(channel, Inspect(tasks, counters=True), on_reply)

    def dump_stacks(self, on_reply: OnReply, full: bool = False) -> None:
        """Ask for the stacks of the running tasks; they go into the history. `on_reply` gets each host's answer."""
        for channel, tasks in self._by_channel(self.running).items():
            self.requests.send(channel, DumpStacks(tasks, full), on_reply)

    def note(self, text: str) -> None:
        """Print a line of the launcher, `[tfdist] text`."""
        self.announce(Note("tfdist", text))

    def _keep_states(self, reply: Reply) -> None:
        if isinstance(reply, Inspected):
            for task, state in reply.states.items():
                seen = ProcessState(state, reply.waits.get(task, ""), reply.cpu_s.get(task, 0.0), event_time())
                self.history.states[task] = seen

    def _by_channel(self, tasks: Collection[str]) -> dict[Channel, tuple[str, ...]]:
        by_channel: dict[Channel, tuple[str, ...]] = {}
        for task in sorted(tasks):
            channel = self.channels[task]
            by_channel[channel] = (*by_channel.get(channel, ()), task)
        return by_channel


@dataclass
class PendingStart:
    """Tasks that will be started together."""

    tasks: set[str]
    at: float
    """Monotonic time before which they are not started."""


@dataclass
class PendingStarts:
    """Starts the present attempts of tasks as soon as they may be started."""

    group: TaskGroup
    timed_out: Action
    """Called if tasks are not started in time."""
    waiting: list[PendingStart] = field(default_factory=list)

    @property
    def tasks(self) -> set[str]:
        """The tasks that will be started."""
        return {task for start in self.waiting for task in start.tasks}

    def add(self, tasks: Collection[str], at: float) -> None:
        """Start these tasks at that monotonic time, or later if they still run then."""
        for start in self.waiting:
            start.tasks -= set(tasks)
        self.waiting.append(PendingStart(set(tasks), at))
        self._set_deadline()

    def cancel(self) -> None:
        """Start nothing any more."""
        self.waiting.clear()
        self.group.deadlines.cancel(self.start_due)

    def note_end(self, message: Message) -> None:
        """Take a message about an earlier attempt of a task: if its process has ended, the next one may start."""
        if isinstance(message, Exited | NotStarted | Stuck):
            self.group.note_end_before(message.task)
            self._set_deadline()

    def start_due(self, now: float) -> None:
        """Start the tasks whose time has come."""
        for start in [start for start in self._unblocked() if start.at <= now]:
            self.waiting.remove(start)
            self.group.start(start.tasks)
            self.group.deadlines[self.timed_out] = now + self.group.policy.start_timeout_s
        self._set_deadline()

    def _unblocked(self) -> list[PendingStart]:
        return [start for start in self.waiting if not any(map(self.group.has_process, start.tasks))]

    def _set_deadline(self) -> None:
        times = [start.at for start in self._unblocked()]
        if times:
            self.group.deadlines[self.start_due] = min(times)
