"""Watch over a job's tasks until all of them have ended: one queue of events, one loop that decides."""

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
from tfdist.launch.logs import Log
from tfdist.launch.policy import Policy
from tfdist.launch.rundir import RunDir

OnMessage = Callable[[Message], None]
"""Is told everything as it comes; must be quick, for the loop waits for it."""


@dataclass
class Watch:
    """What the loop knows."""

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
    """Monotonic: when the tasks that are left will be told to end."""
    time_out_at: float | None = None
    silence: SilenceDetector = field(init=False)

    def __post_init__(self) -> None:
        self.silence = SilenceDetector(self.policy.silence_s)

    # --- deciding

    def note(self, message: Message) -> None:
        """Take one message into account."""
        if isinstance(message, Event):
            self._note_event(message)
        elif isinstance(message, Interrupted):
            again = any(isinstance(entry, Interrupted) for entry in self.history)
            self.history.append(message)
            self.stop(0.0 if again else self.policy.grace_s)
        elif isinstance(message, AgentLost):
            self.history.append(message)
            lost = {task for task, channel in self.channels.items() if channel.host.name == message.host}
            kill_groups(self.pids[task] for task in lost & self.running & set(self.pids) if self.is_local(task))
            self.running -= lost
            self.stop(min(self.policy.grace_s, self.policy.lost_grace_s))
        elif isinstance(message, Started):
            self.pids[message.task] = message.pid
        elif isinstance(message, Exited | NotStarted):
            self.history.append(message)
            self.running.discard(message.task)
            if isinstance(message, NotStarted):
                self.stop(self.policy.grace_s)
            elif message.code != 0:
                self._stop_by(time.monotonic() + self.policy.settle_s)
            elif message.task == self.job.leader:
                self.stop(self.policy.grace_s)

    def _note_event(self, message: Event) -> None:
        kind = message.event.get("event")
        record = message.event.get("record")
        if kind == "record" and isinstance(record, Mapping):
            self.records[message.task] = record
        elif kind == "barrier":
            self.at_barrier.add(message.task)
            if self.at_barrier >= set(self.job.measuring):
                for channel in set(self.channels.values()):
                    channel.send(Release())

    def is_local(self, task: str) -> bool:
        """Whether it runs on this machine."""
        return self.channels[task].host.local

    def _stop_by(self, moment: float) -> None:
        self.stop_at = min(moment, self.stop_at) if self.stop_at is not None else moment

    # --- acting

    def stop(self, grace_s: float) -> None:
        """Tell all that still run to end, politely first if `grace_s` is not 0."""
        self.history.append(Stopped())
        self.stop_at = None
        for channel in set(self.channels.values()):
            tasks = tuple(task for task in sorted(self.running) if self.channels[task] is channel)
            if tasks:
                channel.send(Stop(tasks, grace_s))

    def do_what_is_due(self, now: float) -> None:
        """The time limit, the end of the settling time, and agents that have fallen silent."""
        if self.time_out_at is not None and now >= self.time_out_at:
            self.time_out_at = None
            self.history.append(TimedOut(self.policy.timeout_s or 0.0))
            self.stop(self.policy.grace_s)
        if self.stop_at is not None and now >= self.stop_at:
            self.stop(self.policy.grace_s)
        for _, lost in self.silence.newly_silent(set(self.channels.values()), now):
            self.note(lost)

    def next_due(self) -> float:
        """Monotonic time at which to look again even if nothing comes."""
        look = time.monotonic() + self.policy.heartbeat_s
        silences = map(self.silence.deadline, self.channels.values())
        return min(moment for moment in (self.stop_at, self.time_out_at, look, *silences) if moment is not None)


def supervise(watch: Watch, run_dir: RunDir, listen: OnMessage) -> None:
    """Run the loop until no task runs; the watch then holds the whole history."""
    if watch.policy.timeout_s is not None:
        watch.time_out_at = time.monotonic() + watch.policy.timeout_s
    with Log(run_dir) as log:
        while watch.running:
            now = time.monotonic()
            watch.do_what_is_due(now)
            try:
                source, message = watch.inbox.get(timeout=max(0.0, watch.next_due() - now))
            except Empty:
                continue
            log.write(message)
            if source is not None and isinstance(message, Output):
                source.output_slots.release()
            watch.note(message)
            listen(message)
