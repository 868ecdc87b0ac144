"""Supervise a job's tasks until all have ended: one queue of messages, one loop."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

from tfdist.launch.agents.channel import Channel, Inbox
from tfdist.launch.agents.messages import (
    AgentLost,
    Event,
    Exited,
    Interrupted,
    Message,
    NotStarted,
    Output,
    Release,
    Started,
    Stop,
)
from tfdist.launch.agents.signals import kill_groups
from tfdist.launch.agents.silence import SilenceDetector
from tfdist.launch.diagnose import Entry, Stopped, TimedOut
from tfdist.launch.job import Job
from tfdist.launch.logs import LogWriter
from tfdist.launch.policy import Policy
from tfdist.launch.rundir import RunDir

OnMessage = Callable[[Message], None]
"""Called with every message of a running job. The loop waits for it, so it must return quickly."""


@dataclass
class Supervisor:
    """The state of a running job. Messages and deadlines decide what happens; private methods do it."""

    job: Job
    channels: Mapping[str, Channel]
    """By task."""
    policy: Policy
    inbox: Inbox
    running: set[str]
    history: list[Entry] = field(default_factory=list)
    records: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    at_barrier: set[str] = field(default_factory=set)
    pids: dict[str, int] = field(default_factory=dict)
    stop_at: float | None = None
    """Monotonic time at which the running tasks are stopped."""
    time_out_at: float | None = None
    silence: SilenceDetector = field(init=False)

    def __post_init__(self) -> None:
        self.silence = SilenceDetector(self.policy.silence_s)

    def handle(self, message: Message) -> None:
        """Decide what a message changes."""
        if isinstance(message, Interrupted | AgentLost | Exited | NotStarted):
            self.history.append(message)
        match message:
            case Started(task, pid):
                self.pids[task] = pid
            case Event(task, event={"event": "record", "record": Mapping() as record}):
                self.records[task] = record
            case Event(task, event={"event": "barrier"}):
                self.at_barrier.add(task)
                if self.at_barrier >= set(self.job.measuring):
                    self._open_barrier()
            case Exited(task, code):
                self.running.discard(task)
                if code != 0:
                    settled_at = time.monotonic() + self.policy.settle_s
                    self.stop_at = settled_at if self.stop_at is None else min(settled_at, self.stop_at)
                elif task == self.job.leader:
                    self._stop(self.policy.grace_s)
            case NotStarted(task):
                self.running.discard(task)
                self._stop(self.policy.grace_s)
            case Interrupted():
                first = sum(isinstance(entry, Interrupted) for entry in self.history) == 1
                self._stop(self.policy.grace_s if first else 0.0)
            case AgentLost(host):
                self._abandon(host)
                self._stop(min(self.policy.grace_s, self.policy.lost_grace_s))

    def check_deadlines(self, now: float) -> None:
        """Decide what the time changes: the job's time limit, the end of the settling time, silent agents."""
        if self.time_out_at is not None and now >= self.time_out_at:
            self.time_out_at = None
            self.history.append(TimedOut(self.policy.timeout_s or 0.0))
            self._stop(self.policy.grace_s)
        if self.stop_at is not None and now >= self.stop_at:
            self._stop(self.policy.grace_s)
        for _, lost in self.silence.newly_silent(set(self.channels.values()), now):
            self.handle(lost)

    def next_deadline(self) -> float:
        """Monotonic time of the next check, even if no message arrives."""
        heartbeat = time.monotonic() + self.policy.heartbeat_s
        silences = map(self.silence.deadline, self.channels.values())
        return min(due for due in (self.stop_at, self.time_out_at, heartbeat, *silences) if due is not None)

    def _stop(self, grace_s: float) -> None:
        self.history.append(Stopped())
        self.stop_at = None
        for channel in set(self.channels.values()):
            tasks = tuple(task for task in sorted(self.running) if self.channels[task] is channel)
            if tasks:
                channel.send(Stop(tasks, grace_s))

    def _open_barrier(self) -> None:
        for channel in set(self.channels.values()):
            channel.send(Release())

    def _abandon(self, host: str) -> None:
        # Agents on other hosts stop their own tasks; a local agent that was killed leaves its tasks running.
        lost = {task for task in self.running if self.channels[task].host.name == host}
        kill_groups(self.pids[task] for task in lost & set(self.pids) if self.channels[task].host.local)
        self.running -= lost


def supervise(supervisor: Supervisor, run_dir: RunDir, on_message: OnMessage) -> float:
    """Run the loop until no task runs; returns its wall time in seconds."""
    started = time.monotonic()
    if supervisor.policy.timeout_s is not None:
        supervisor.time_out_at = started + supervisor.policy.timeout_s
    with LogWriter(run_dir) as logs:
        while supervisor.running:
            now = time.monotonic()
            supervisor.check_deadlines(now)
            try:
                channel, message = supervisor.inbox.get(timeout=max(0.0, supervisor.next_deadline() - now))
            except Empty:
                continue
            logs.write(message)
            if channel is not None and isinstance(message, Output):
                channel.output_slots.release()
            supervisor.handle(message)
            on_message(message)
    return time.monotonic() - started
