"""What happened in a job, in the order in which the launcher learned it. `diagnose` reads it; tests write their own.

All times are seconds since 1970 by this machine's clock: channels convert the times of other hosts.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tfdist.launch.agents.messages import (
    AgentLost,
    Event,
    Exited,
    Interrupted,
    Listening,
    Message,
    NotStarted,
    Output,
    Started,
    Stopped,
    Stuck,
)

TAIL_LINES = 40
"""Last lines that are kept of each stream of each task."""
MOST_LINE = 2000
"""Characters of a line that are kept."""


@dataclass(frozen=True)
class Failed:
    """A task's own report of the exception that ends it, from its `failed` event: first-hand evidence."""

    task: str
    type: str
    """`ValueError`."""
    message: str
    where: str
    """`train.py:12`; empty if unknown."""
    time: float
    attempt: int = 0


@dataclass(frozen=True)
class TimedOut:
    """The job reached its time limit."""

    timeout_s: float


@dataclass(frozen=True)
class StartTimedOut:
    """Tasks were not started in time."""

    timeout_s: float
    tasks: tuple[str, ...]


Entry = (
    Started
    | Listening
    | Exited
    | NotStarted
    | Stuck
    | Failed
    | AgentLost
    | Interrupted
    | TimedOut
    | StartTimedOut
    | Stopped
)
"""One entry of a history."""

_KEPT = (Started, Listening, Exited, NotStarted, Stuck, AgentLost, Interrupted, Stopped)


@dataclass(frozen=True)
class ProcessState:
    """What the kernel said of a running task's process."""

    state: str
    """As in /proc/PID/stat: `R`, `S`, `T` (stopped by a signal), `D` (uninterruptible sleep)."""
    wait: str = ""
    """The kernel function that it sleeps in; empty if unknown."""


@dataclass
class History:
    """Entries in the order of arrival, and the last signs of life of each task."""

    entries: list[Entry] = field(default_factory=list)
    steps: dict[str, tuple[int, float]] = field(default_factory=dict)
    """The last step of each task and its time."""
    outputs: dict[str, float] = field(default_factory=dict)
    """When each task last wrote anything."""
    tails: dict[tuple[str, str], deque[str]] = field(default_factory=dict)
    """The last lines of each task's `stdout` and `stderr`, by task and stream."""
    states: dict[str, ProcessState] = field(default_factory=dict)
    """Processes of tasks that ran when the launcher last asked."""

    def add(self, message: Message, now: float) -> None:
        """Keep what a message says; `now` is its arrival."""
        match message:
            case Output(task, stream, text):
                self.outputs[task] = now
                lines = self.tails.setdefault((task, stream), deque(maxlen=TAIL_LINES))
                lines.extend(line[:MOST_LINE] for line in text.splitlines()[-TAIL_LINES:])
            case Event(task, time, event={"event": "step", "step": int() as step}):
                self.steps[task] = step, time
            case Event(task, time, event={"event": "failed"} as event):
                self.entries.append(_failed(task, event, time, message.attempt))
            case message if isinstance(message, _KEPT):
                self.entries.append(message)

    def tail(self, task: str, stream: str = "stderr") -> list[str]:
        """The last lines that a task wrote to a stream."""
        return list(self.tails.get((task, stream), ()))


def _failed(task: str, event: Mapping[str, Any], time: float, attempt: int) -> Failed:
    kind, message, where = (str(event.get(name, "")) for name in ("type", "message", "where"))
    return Failed(task, kind, message, where, time, attempt)
