"""Supervise a job's tasks until all have ended: one queue of messages, one loop."""

import math
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

from tfdist.launch.agents.channel import Channel
from tfdist.launch.agents.inbox import Arrival, Inbox
from tfdist.launch.agents.launcher_messages import AgentLost, Interrupted, Message, NextTurn, OnMessage, Stopped
from tfdist.launch.agents.messages import (
    Event,
    Exited,
    Heartbeat,
    Inspect,
    Inspected,
    NotStarted,
    Release,
    Reply,
    Started,
    Stop,
    Stuck,
    TaskMessage,
)
from tfdist.launch.agents.program.clock import event_time
from tfdist.launch.agents.requests import Requests
from tfdist.launch.agents.silence import SilenceDetector
from tfdist.launch.diagnosis.culprit import shows_cause
from tfdist.launch.diagnosis.history import Failed, History, ProcessState, StartTimedOut, TimedOut
from tfdist.launch.job import Job
from tfdist.launch.joining import CHECK_S, JoinWatch
from tfdist.launch.policy import Policy
from tfdist.launch.runs.writer import RunWriter
from tfdist.launch.text import shortened, signal_name


@dataclass
class Supervisor:
    """The state of a running job. Messages and deadlines decide what happens; private methods do it."""

    job: Job
    channels: Mapping[str, Channel]
    """By task."""
    policy: Policy
    inbox: Inbox
    running: set[str]
    requests: Requests = field(default_factory=Requests)
    announce: OnMessage = lambda _: None
    """Called with the supervisor's own messages: silent hosts, and stops."""
    history: History = field(default_factory=History)
    records: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    paced: bool = False
    """The barrier opens only for a `NextTurn`, and the time limit is that of each turn."""
    turns: int = 0
    """Number of turns so far."""
    attempts: dict[str, int] = field(default_factory=dict)
    """The present attempt of each task that was restarted; 0 for the others."""
    at_barrier: set[str] = field(default_factory=set)
    started: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    """Leading tasks that exited with code 0."""
    failed_at: float | None = None
    """Monotonic time of the first failure."""
    stopped: bool = False
    """The running tasks have been stopped."""
    stop_at: float | None = None
    """Monotonic time at which the running tasks are stopped."""
    timeout_at: float | None = None
    start_timeout_at: float | None = None
    """Monotonic time at which all tasks must have been started."""
    check_joining_at: float | None = None
    """Monotonic time of the next check of tasks that may wait for one that has exited."""
    check_silence_at: float = -math.inf
    """Monotonic time of the next check for silent agents; not with each message, as there may be a thousand agents."""
    silence: SilenceDetector = field(init=False)
    joining: JoinWatch = field(init=False)

    def __post_init__(self) -> None:
        self.silence = SilenceDetector(self.policy.silence_s)
        self.joining = JoinWatch(self.job, self.history)

    def accepts(self, arrival: Arrival) -> bool:
        """Whether a message about a task is from its host, which must not affect others, and about a known attempt."""
        message = arrival.message
        if not isinstance(message, TaskMessage):
            return True
        channel = self.channels.get(message.task)
        known = 0 <= message.attempt <= self.attempts.get(message.task, 0)
        return channel is not None and channel.host == arrival.host and known

    def handle(self, message: Message, at: float | None = None) -> None:
        """Decide what a message changes.

        Args:
            message: of a host that `accepts` it.
            at: monotonic time of its arrival; None: now.
        """
        at = time.monotonic() if at is None else at
        self.history.add(message, event_time() - (time.monotonic() - at))
        if isinstance(message, TaskMessage) and message.attempt != self.attempts.get(message.task, 0):
            return
        match message:
            case Started(task):
                self.started.add(task)
                if self.started >= set(self.channels):
                    self.start_timeout_at = None
            case Event(task, event={"event": "record", "record": Mapping() as record}):
                self.records[task] = record
            case Event(task, event={"event": "barrier"}):
                self.at_barrier.add(task)
                self._after_barrier()
            case Event(event={"event": "failed"}):
                self._after_failure(at)
            case Exited(task, code):
                self.running.discard(task)
                self._after_exit(task, code, at)
            case Stuck(task):
                self.running.discard(task)
            case NotStarted(task):
                self.running.discard(task)
                self._stop(self.policy.grace_s, f"{task} could not be started")
            case NextTurn(turn):
                self._start_turn(turn, at)
            case Interrupted(number, by):
                first = len(self.history.select(Interrupted)) == 1
                reason = by or ("Ctrl-C" if number == signal.SIGINT else signal_name(number))
                self._stop(self.policy.grace_s if first else 0.0, reason)
            case AgentLost(host):
                self._abandon(host, at)

    def check_deadlines(self, now: float) -> None:
        """Decide what the time changes: time limits, the end of the settling time, silent agents."""
        if self.timeout_at is not None and now >= self.timeout_at:
            self.timeout_at = None
            timeout_s = self.policy.timeout_s or 0.0
            self.history.entries.append(TimedOut(timeout_s))
            self._stop(self.policy.grace_s, f"--timeout {timeout_s:g} s")
        if self.start_timeout_at is not None and now >= self.start_timeout_at:
            self.start_timeout_at = None
            missing = tuple(sorted(set(self.channels) - self.started))
            self.history.entries.append(StartTimedOut(self.policy.start_timeout_s, missing))
            self.running -= set(missing)
            self._stop(self.policy.grace_s, f"{shortened(missing)} not started in time")
        if self.stop_at is not None and now >= self.stop_at:
            self._settle(now)
        if self.check_joining_at is not None and now >= self.check_joining_at:
            self._check_joining(now)
        if now >= self.check_silence_at:
            self._check_silence(now)

    def next_deadline(self) -> float:
        """Monotonic time of the next check, even if no message arrives."""
        heartbeat = time.monotonic() + self.policy.heartbeat_s
        checks = (self.check_joining_at, self.check_silence_at, heartbeat)
        dues = (self.stop_at, self.timeout_at, self.start_timeout_at, *checks)
        return min(due for due in dues if due is not None)

    def _after_exit(self, task: str, code: int, at: float) -> None:
        early = task in self.job.serving and not self.finished >= set(self.job.leading)
        if code != 0 or early:
            self._after_failure(at)
            return
        self.finished |= {task} & set(self.job.leading)
        if self.finished >= set(self.job.leading):
            if not self.stopped:
                self._stop(self.policy.grace_s)
            return
        self._after_barrier()  # the others need not wait for this one
        if self.joining.note_exit(task):
            self.check_joining_at = at + max(0.0, self.policy.settle_secondary_s - 2 * CHECK_S)

    def _after_failure(self, at: float) -> None:
        if self.failed_at is None and not self.stopped:
            self.failed_at, self.stop_at = at, at + self.policy.settle_s
            self._inspect()

    def _settle(self, now: float) -> None:
        """Stop the other tasks, but not as long as every failure may be the consequence of one not seen yet.

        A task that reported its exception gets more time: it may save its logs before it exits.
        """
        until = (self.failed_at or now) + self.policy.settle_secondary_s
        if now < until and not shows_cause(self.history, self.job):
            self.stop_at = min(until, now + 1.0)
            self._inspect()
            return
        ending = {entry.task for entry in self.history.select(Failed)} & self.running
        if now >= until:
            self._stop(self.policy.grace_s, _first_failure(self.history), self.running - ending if self.stopped else ())
            return
        self._stop(self.policy.grace_s, _first_failure(self.history), ending)
        if ending:
            self.stop_at = until

    def _check_silence(self, now: float) -> None:
        channels = set(self.channels.values())
        for _, lost in self.silence.newly_silent(channels, now):
            self.handle(lost)
            self.announce(lost)
        at_most_s = min(self.policy.heartbeat_s, self.policy.silence_s / 4)
        self.check_silence_at = min([now + at_most_s, *map(self.silence.deadline, channels)])

    def _check_joining(self, now: float) -> None:
        not_joined = self.joining.check(self.running, event_time())
        if not_joined is not None and not self.stopped:
            self.history.entries.append(not_joined)
            self._stop(self.policy.grace_s, f"{not_joined.task} did not join the cluster")
        self._inspect()
        self.check_joining_at = now + CHECK_S if not self.stopped else None

    def _inspect(self, gpus: bool = False) -> None:
        for channel, tasks in self._by_channel(self.running).items():
            self.requests.send(channel, Inspect(tasks, gpus), self._keep_states)

    def _keep_states(self, reply: Reply) -> None:
        if isinstance(reply, Inspected):
            for task, state in reply.states.items():
                self.history.states[task] = ProcessState(state, reply.waits.get(task, ""), reply.cpu_s.get(task, 0.0))

    def _by_channel(self, tasks: Collection[str]) -> dict[Channel, tuple[str, ...]]:
        by_channel: dict[Channel, tuple[str, ...]] = {}
        for task in sorted(tasks):
            channel = self.channels[task]
            by_channel[channel] = (*by_channel.get(channel, ()), task)
        return by_channel

    def _stop(self, grace_s: float, reason: str = "", spared: Collection[str] = ()) -> None:
        self.stop_at, self.start_timeout_at, self.stopped = None, None, True
        if self.history.select(AgentLost):
            grace_s = min(grace_s, self.policy.lost_grace_s)
        stopped = Stopped(tuple(sorted(self.running.difference(spared))), grace_s, event_time(), reason)
        self.history.entries.append(stopped)
        if stopped.tasks:
            self.announce(stopped)
        for channel, tasks in self._by_channel(stopped.tasks).items():
            channel.send(Stop(tasks, grace_s))

    def _after_barrier(self) -> None:
        if not self.at_barrier or not self.at_barrier | self.finished >= set(self.job.leading):
            return
        if self.paced and self.finished:  # no turn can follow: it would wait for this task
            if not self.stopped:
                early = min(self.finished)
                self._stop(self.policy.grace_s, f"{early} exited with code 0 while other tasks wait for a turn")
        elif self.paced:
            self.timeout_at = None
            # the CPU time that the turn took, and, once the task has started, the memory that it takes
            self._inspect(gpus=not self.turns)
        else:
            self._open_barrier(None)

    def _start_turn(self, turn: Mapping[str, Any] | None, at: float) -> None:
        if self.policy.timeout_s is not None:
            self.timeout_at = at + self.policy.timeout_s
        self.turns += 1
        self._inspect()
        self._open_barrier(turn)
        self.at_barrier.clear()

    def _open_barrier(self, turn: Mapping[str, Any] | None) -> None:
        for attempt in {self.attempts.get(task, 0) for task in self.at_barrier}:
            for channel in dict.fromkeys(self.channels.values()):
                channel.send(Release(attempt, turn))

    def _abandon(self, host: str, at: float) -> None:
        # Its tasks end without us: an agent stops them, and the parent of an agent kills what a killed one leaves.
        lost = {task for task in self.running if self.channels[task].host.name == host}
        self.running -= lost
        if lost and not self.stopped:  # other hosts may be lost at the same time
            self.failed_at = self.failed_at or at
            self.stop_at = at + min(self.policy.settle_s, self.policy.lost_grace_s)


def _first_failure(history: History) -> str:
    for entry in history.entries:
        match entry:
            case Failed(task):
                return f"{task} failed"
            case Exited(task, code) if code != 0:
                return f"{task} failed"
            case AgentLost(host):
                return f"lost {host}"
    return "a task has ended too early"


def supervise(supervisor: Supervisor, writer: RunWriter, on_message: OnMessage) -> float:
    """Run the loop until no task runs; returns its wall time in seconds."""
    started = time.monotonic()
    if supervisor.policy.timeout_s is not None:
        supervisor.timeout_at = started + supervisor.policy.timeout_s
    supervisor.start_timeout_at = started + supervisor.policy.start_timeout_s
    while supervisor.running:
        now = time.monotonic()
        supervisor.check_deadlines(now)
        try:
            arrival = supervisor.inbox.get(supervisor.next_deadline() - now)
        except Empty:
            on_message(Heartbeat(event_time()))  # a display counts its seconds on
            continue
        if not supervisor.accepts(arrival):
            writer.refuse(arrival)
            continue
        writer.write(arrival.message)
        supervisor.requests.take(arrival.host, arrival.message)
        supervisor.handle(arrival.message, arrival.at)
        on_message(arrival.message)
    return time.monotonic() - started
