"""The processes of a running job: which of them run, and the messages that start, inspect and stop them."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tfdist.launch.agent_program.system import event_time
from tfdist.launch.agents.channel import Channel
from tfdist.launch.agents.fleet import OnReply, Requests
from tfdist.launch.agents.inbox import Note, OnMessage, Stopped
from tfdist.launch.agents.messages import DumpStacks, Inspect, Inspected, Reply, Start, Stop
from tfdist.launch.diagnosis.history import History, ProcessState
from tfdist.launch.job import Job
from tfdist.launch.policy import Policy

Action = Callable[[float], None]
"""Called with the monotonic time, when it is due."""


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
                del self[action]
                action(now)


@dataclass
class TaskGroup:
    """What the parts of a supervisor share. Messages to agents are sent through it."""

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
    attempts: dict[str, int] = field(default_factory=dict)
    """The present attempt of each task; 0 for those that are missing."""
    running: set[str] = field(default_factory=set)
    """Tasks that have a process, or will get one as soon as their agent has read the request."""
    started: set[str] = field(default_factory=set)
    """Tasks whose present attempt has been started."""
    finished: set[str] = field(default_factory=set)
    """Leading tasks that exited with code 0."""
    stopped: bool = False
    """All tasks have been stopped; none is started again."""

    def attempt(self, task: str) -> int:
        """The number of the task's present attempt."""
        return self.attempts.get(task, 0)

    @property
    def leaders(self) -> list[str]:
        """The leading tasks that run."""
        return [task for task in self.job.leading if task in self.running]

    @property
    def succeeded(self) -> bool:
        """Whether all leading tasks have exited with code 0."""
        return self.finished >= set(self.job.leading)

    def start(self, tasks: Collection[str]) -> None:
        """Start the present attempts of these tasks."""
        for plan in [plan for plan in self.job.plans if plan.task.name in tasks]:
            task = plan.task.name
            argv = self.job.command(plan)
            cwd = plan.program.cwd
            number = self.attempt(task)
            env = {**self.job.environment(plan), "TFDIST_ATTEMPT": str(self.job.first_attempt + number)}
            port = self.job.cluster.port(plan.task)
            self.running.add(task)
            self.channels[task].send(Start(task, argv, env, cwd, plan.cores, port, attempt=number))

    def renew(self, tasks: Collection[str], attempt: int) -> None:
        """Expect this attempt of the tasks next, and forget what is known about the one before."""
        self.attempts |= dict.fromkeys(tasks, attempt)
        self.started -= set(tasks)
        self.finished -= set(tasks)
        self.history.forget(tasks)

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

    def stop(self, tasks: Collection[str], grace_s: float, keeps_barrier: bool = False) -> None:
        """Send SIGTERM to these tasks, and SIGKILL `grace_s` later."""
        for channel, names in self._by_channel(tasks).items():
            channel.send(Stop(names, grace_s, keeps_barrier))

    def note(self, text: str) -> None:
        """Print a line of the launcher, `[tfdist] text`."""
        self.announce(Note("tfdist", text))

    def note_stop(self, tasks: Collection[str], grace_s: float, reason: str) -> None:
        """Announce that these tasks are being stopped: their exits are not failures."""
        stopped = Stopped(tuple(sorted(tasks)), grace_s, event_time(), reason)
        self.history.entries.append(stopped)
        if stopped.tasks:
            self.announce(stopped)

    def of_host(self, host: str) -> set[str]:
        """The tasks on the host of that name."""
        return {task for task, channel in self.channels.items() if channel.host.name == host}

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
