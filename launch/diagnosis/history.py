"""What happened in a job, in the order of arrival at the launcher. `diagnose` reads it; tests replay their own.

All times are seconds since 1970 by this machine's clock: channels convert the times of other hosts.
"""

import re
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from tfdist.launch.agents.inbox import AgentLost, Interrupted, Message, Stopped
from tfdist.launch.agents.messages import Event, Exited, Listening, NotStarted, Output, Stuck, TaskMessage
from tfdist.launch.diagnosis.straggler import StragglerReport
from tfdist.launch.str_enum import StrEnum


@dataclass(frozen=True)
class Attempt:
    """One attempt, as saved in outcome.json. Times are seconds since 1970."""

    number: int
    """Counted from 0. A restart counts one up, whichever tasks it restarts, and is the attempt of these."""
    tasks: tuple[str, ...]
    """Those that it started; the others continued."""
    started: float
    ended: float | None = None
    """When the failure that ended it was detected, or the job ended; None while it runs."""
    first_step: float | None = None
    """Time of the first `step` event of a task that it started; None without one."""
    reason: str = ""
    """Why it ended; empty if it succeeded, or runs."""
    culprit: str | None = None
    exit_code: int = 0
    resumed_from: int | None = None
    """The step of the checkpoint that it continued from; None: from the start."""
    last_step: int | None = None
    """The highest step that any task reported."""
    note: str = ""
    """What is different from the attempt before, as in `3 workers instead of 4 (lost h2)`."""


class Status(StrEnum):
    """How a job ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Outcome:
    """The end of a job, as saved in outcome.json."""

    status: Status
    exit_code: int
    reason: str
    """One sentence; empty if the job succeeded."""
    culprit: str | None = None
    """The task that caused the failure."""
    culprits: tuple[str, ...] = ()
    """It and those that failed in the same way, or too close to it to be ordered."""
    log: tuple[str, ...] = ()
    """The culprit's traceback, or its last lines, without what TensorFlow logs on start-up."""
    hints: tuple[str, ...] = ()
    """What to do about known incompatibilities."""
    casualties: Mapping[str, str] = field(default_factory=dict)
    """How each other task ended that did not succeed, by task."""
    warnings: tuple[str, ...] = ()
    """Processes that are left over, and logs that are cut."""
    exits: Mapping[str, Exited] = field(default_factory=dict)
    wall_s: float = 0.0
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The `record` event of each task."""
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Each host's description from its agent."""
    run_dir: str = ""
    attempts: tuple[Attempt, ...] = ()
    """Attempts in the order of their starts; the last one is how the job ended."""
    stragglers: tuple[StragglerReport, ...] = ()
    """Workers that held the others up, in the order in which they were named."""
    not_restarted: str = ""
    """Why the job was not restarted after its last failure; empty if no restart was asked for. Before that
    decision: why a restart would not help."""
    signal: int = 0
    """The signal that interrupted the launcher; 0: none did."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version, without the records: the disk may be nearly full."""
        return {"format": 1, **{name: value for name, value in asdict(self).items() if name != "records"}}


TAIL_LINES = 100
"""Last lines that are kept of each stream of each task: a traceback through TensorFlow has 50."""
MOST_STACKS = 1 << 18
"""Characters of a task's stacks that are kept."""
MOST_LINE = 2000
"""Characters of a line that are kept."""
MOST_TEXT = 10_000
"""Characters of each text of a `failed` event that are kept."""
MOST_HEADLINE = 300
"""Characters of an exception in a sentence."""
_WITHOUT_CONTENT = re.compile(r"\s*$|Graph execution error:|Detected at node |<stack traces unavailable>|\s+File |\s")
"""Lines of TensorFlow's messages that do not tell what failed."""


@dataclass(frozen=True)
class ErrorText:
    """An exception that ended a task, or is about to."""

    type: str
    """The name of its class, without the module: `ValueError`."""
    message: str
    time: float
    """When the launcher learned of it, or when it was raised if the task reported it."""
    causes: str = ""
    """The exceptions that led to it."""
    lines: tuple[str, ...] = ()
    """The traceback."""

    @property
    def headline(self) -> str:
        """`ValueError: bad data`: the type and the first informative line of the message."""
        lines = self.message.splitlines()
        informative = [line for line in lines if not _WITHOUT_CONTENT.match(line)]
        first = next(iter(informative or lines), "")
        text = ": ".join(filter(None, (self.type, first.strip())))
        return text if len(text) <= MOST_HEADLINE else f"{text[:MOST_HEADLINE]} ..."

    @property
    def text(self) -> str:
        """The exception with its message, and the exceptions that led to it."""
        return f"{self.causes}\n{self.type}: {self.message}"


@dataclass(frozen=True)
class ReportedError(ErrorText):
    """A task's own report of the exception that ends it, from its `failed` event: first-hand evidence."""

    task: str = field(kw_only=True)
    attempt: int = field(default=0, kw_only=True)


@dataclass(frozen=True)
class NotJoined:
    """A leading task exited with code 0 before its server accepted connections, and its peers wait for it."""

    task: str
    waiting: tuple[str, ...]


@dataclass(frozen=True)
class Freeze:
    """A signal has stopped these tasks' processes, and nothing continued them."""

    tasks: tuple[str, ...]


@dataclass(frozen=True)
class OwnConfig:
    """The program sets TF_CONFIG, and no task listens on its port."""

    sentence: str
    """What is wrong, with the line of the program, and what to do."""


@dataclass(frozen=True)
class TimedOut:
    """The job reached its time limit."""

    timeout_s: float


@dataclass(frozen=True)
class StartTimedOut:
    """Tasks were not started in time."""

    timeout_s: float
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Stall:
    """No task has taken a step for `timeout_s`."""

    timeout_s: float
    cores_used: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds per second of each task's process during the stall."""


@dataclass(frozen=True)
class NotFinite:
    """The first loss that is not finite, if the job stops because of it."""

    task: str
    step: int
    loss: float


Kept = Listening | Exited | NotStarted | Stuck | AgentLost | Interrupted | Stopped
"""Messages that become entries unchanged."""
StopReason = Interrupted | TimedOut | StartTimedOut | Stall | NotFinite
"""Why the launcher stops tasks that have not failed."""
Entry = Kept | StopReason | ReportedError | NotJoined | Freeze | OwnConfig
"""One entry of a history."""
Kind = TypeVar("Kind", bound=Entry)


@dataclass(frozen=True)
class ProcessState:
    """The process of a running task, from /proc."""

    state: str
    """State in /proc/PID/stat: `R`, `S`, `T` (stopped by a signal), `D` (uninterruptible sleep)."""
    wait: str = ""
    """The kernel function that it sleeps in; empty if unknown."""
    cpu_s: float = 0.0
    """CPU time used so far, all threads together."""
    time: float = 0.0
    """When the launcher learned of it."""


class OutputLine(NamedTuple):
    """A line that a task wrote."""

    time: float
    """Time of arrival."""
    text: str


@dataclass
class History:
    """Entries in the order of arrival, and the last step and output of each task."""

    entries: list[Entry] = field(default_factory=list)
    steps: dict[str, tuple[int, float]] = field(default_factory=dict)
    """The last step of each task and its time."""
    saved_step: int | None = None
    """The step of the last checkpoint that a task reported."""
    outputs: dict[str, float] = field(default_factory=dict)
    """When each task last wrote anything."""
    tails: dict[tuple[str, str], deque[OutputLine]] = field(default_factory=dict)
    """The last lines of each task's `stdout` and `stderr`, by task and stream."""
    states: dict[str, ProcessState] = field(default_factory=dict)
    """Processes of the tasks that ran at the last `Inspect` request."""
    stacks: dict[str, str] = field(default_factory=dict)
    """The stacks of each task's threads; clear it before they are requested again."""
    _known: set[tuple[type, str, int]] = field(default_factory=set)
    """Kind, task and attempt of the entries about tasks."""
    _open: set[tuple[str, str]] = field(default_factory=set)
    """Streams whose last line has no end yet."""
    _selected: dict[type, tuple[list[Entry], int, list[Any]]] = field(default_factory=dict, repr=False, compare=False)
    """What `select` has found, by kind: in which entries, how many of them it has looked at, and the result."""

    def add(self, message: Message, now: float) -> None:
        """Add a message; `now` is its arrival."""
        match message:
            case Output(task, "stacks", text):
                self.stacks[task] = (self.stacks.get(task, "") + text)[:MOST_STACKS]
            case Output(task, stream, text):
                self.outputs[task] = now
                self._keep_lines(task, stream, text, now)
            case Event(task, time, event={"event": "step", "step": int() as step}):
                self.steps[task] = step, time
            case Event(event={"event": "checkpoint", "step": int() as step}):
                self.saved_step = step
            case Event(task, time, event={"event": "failed"} as event):
                kind, text, causes = (str(event.get(name, ""))[:MOST_TEXT] for name in ("type", "message", "causes"))
                kind = kind.rpartition(".")[2]
                self._append(ReportedError(kind, text, time, causes, task=task, attempt=message.attempt))
            case message if isinstance(message, Kept):
                self._append(message)

    def _append(self, entry: Entry) -> None:
        """Append an entry; of those about a task, only the first of each kind and attempt: an agent may send many."""
        if isinstance(entry, TaskMessage | ReportedError):
            key = type(entry), entry.task, entry.attempt
            if key in self._known:
                return
            self._known.add(key)
        self.entries.append(entry)

    def forget(self, tasks: Collection[str]) -> None:
        """Drop what is known about these tasks: they are restarted."""
        tasks = set(tasks)
        entries, self.entries = self.entries, []
        for entry in entries:
            match entry:
                case AgentLost() | Interrupted() | TimedOut() | OwnConfig():
                    self.entries.append(entry)
                case Stall():
                    pass
                case Stopped(names) | Freeze(names) | StartTimedOut(tasks=names):
                    left = tuple(name for name in names if name not in tasks)
                    if left:
                        self.entries.append(replace(entry, tasks=left))
                case _ if entry.task not in tasks:
                    self.entries.append(entry)
        for by_task in (self.steps, self.outputs, self.states, self.stacks):
            for task in tasks:
                by_task.pop(task, None)
        self.tails = {key: lines for key, lines in self.tails.items() if key[0] not in tasks}
        self._open = {key for key in self._open if key[0] not in tasks}

    def _keep_lines(self, task: str, stream: str, text: str, now: float) -> None:
        lines = self.tails.setdefault((task, stream), deque(maxlen=TAIL_LINES))
        start = lines.pop().text if (task, stream) in self._open else ""
        *whole, rest = (start + text).rsplit("\n", TAIL_LINES)[-TAIL_LINES:]
        lines.extend(OutputLine(now, _kept(line)) for line in whole)
        if rest:
            lines.append(OutputLine(now, _kept(rest)))
            self._open.add((task, stream))
        else:
            self._open.discard((task, stream))

    def select(self, kind: type[Kind]) -> list[Kind]:
        """The entries of one kind, in order."""
        entries, seen, found = self._selected.get(kind, (self.entries, 0, []))
        if entries is not self.entries:  # some were forgotten
            seen, found = 0, []
        found += (entry for entry in self.entries[seen:] if isinstance(entry, kind))
        self._selected[kind] = self.entries, len(self.entries), found
        return list(found)

    def has(self, kind: type[TaskMessage], task: str, attempt: int) -> bool:
        """Whether there was a message of this kind about this attempt of a task."""
        return (kind, task, attempt) in self._known

    def last_sign(self, task: str) -> float:
        """The time of a task's last output or step; 0 without any."""
        return max(self.outputs.get(task, 0.0), self.steps.get(task, (0, 0.0))[1])

    def lines(self, task: str, stream: str = "stderr") -> list[OutputLine]:
        """The last lines that a task wrote to a stream, with the times of their arrival."""
        return list(self.tails.get((task, stream), ()))

    def tail(self, task: str, stream: str = "stderr") -> list[str]:
        """The last lines that a task wrote to a stream."""
        return [line.text for line in self.lines(task, stream)]


def _kept(line: str) -> str:
    # A progress bar overwrites its line: what counts is its last state.
    return line.rstrip("\r").rpartition("\r")[2][:MOST_LINE]
