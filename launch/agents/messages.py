"""The protocol between launcher and agent: one JSON object per line. `agent.py` implements the other side.

A message is a dataclass in one of the two unions below. Its kind is the class name in snake case. A `Request` is
answered by a `Reply` with the same number. A message about a task carries the task's attempt, counted from 0: what an
earlier attempt still sends after a restart must not be taken for the present one's.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, TypedDict, get_args

from tfdist.launch.agent_program.json_lines import to_line
from tfdist.launch.agent_program.text import MAX_VALUES, too_many_values
from tfdist.launch.text import one_line, plain, replace_surrogates
from tfdist.launch.typed_json import Between, Count, MaxLength, Seconds, Time, from_json, parse_json, with_texts

Text = Annotated[str, MaxLength(1 << 12)]
Reason = Annotated[str, MaxLength(1 << 14)]
Pid = Annotated[int, Between(1, (1 << 31) - 1)]
Port = Annotated[int, Between(0, (1 << 16) - 1)]
Core = Annotated[int, Between(0, 1 << 20)]
Amount = Annotated[float, Between(0, 1 << 62)]
"""Bytes, seconds or cores."""
MAX_OUTPUT = 1 << 17
"""Characters of a message with output: an agent sends what it has read, and an incomplete line before it."""
StreamName = Literal["stdout", "stderr", "stacks"]
"""`stacks`: the stacks of all threads, after `DumpStacks`."""
FolderAction = Literal["write", "read", "remove"]


@dataclass(frozen=True)
class Request:
    """Answered by a `Reply` with the same number."""

    request: Count = field(default=0, kw_only=True)


@dataclass(frozen=True)
class Reply:
    """The answer to a `Request`."""

    reply_to: ClassVar[type[Request]]
    by_task: ClassVar[tuple[str, ...]] = ()
    """Fields with a value for each task. A host may speak of those only that it was asked about: see `about`."""
    request: Count = field(default=0, kw_only=True)

    def about(self, tasks: Collection[str]) -> "Reply":
        """The reply without what it says of other tasks than these."""
        known: dict[str, Any] = {
            name: {task: value for task, value in getattr(self, name).items() if task in tasks} for name in self.by_task
        }
        return replace(self, **known)


@dataclass(frozen=True)
class TaskMessage:
    """A message about one attempt of a task."""

    task: Text
    attempt: Count = field(default=0, kw_only=True)


# --- from the launcher to an agent


@dataclass(frozen=True)
class Configure:
    """The first message to an agent: its timeouts."""

    grace_s: float
    """Seconds between SIGTERM and SIGKILL when the agent stops its tasks without a `Stop`."""
    launcher_timeout_s: float
    """Seconds without a message from the launcher until the agent stops its tasks and exits; infinity: no limit."""
    kill_wait_s: float = 0.0
    """Seconds from SIGTERM until the agent stops its tasks and exits; the launcher knows at once. 0: no wait."""


@dataclass(frozen=True)
class Package:
    """The files of tfdist, for a host that may lack it; the next `Prepare` unpacks them."""

    data: str
    """A compressed tar in base64."""


@dataclass(frozen=True)
class CopyPart:
    """The next part of the archive of a folder, in which tasks run once a `Prepare` has unpacked it."""

    data: str
    """Base64."""


@dataclass(frozen=True)
class Prepare(Request):
    """Unpack tfdist and the copy, if sent, and check that tasks can run in `cwd` (`~` is expanded on the host)."""

    cwd: str
    home_fallback: bool
    """Whether tasks run in the home folder if `cwd` does not exist."""
    script: str = ""
    """The program's file, to be compared between hosts; a path relative to that folder. Empty: none."""
    copies: bool = False
    """Unpack the parts that were sent, unless that was done before."""


@dataclass(frozen=True)
class EndAgent(Request):
    """End the agent of this job that served the host before, and its tasks. For a host that was lost and is back."""

    mark: str
    """The end of its command line."""
    seconds: float
    """It is killed before this time has passed."""


@dataclass(frozen=True)
class Reserve(Request):
    """Reserve these ports (0: any free one) instead of those reserved before.

    With a token, answer probes on them until `CloseProbe`.
    """

    ports: tuple[int, ...]
    token: str = ""


@dataclass(frozen=True)
class Dial(Request):
    """Try to connect to these (address, port) pairs."""

    targets: tuple[tuple[str, int], ...]
    token: str
    timeout_s: float


@dataclass(frozen=True)
class MeasureLink(Request):
    """Measure the link to a peer that answers probes at this port, for `seconds`."""

    address: str
    port: int
    token: str
    seconds: float


@dataclass(frozen=True)
class CloseProbe:
    """Stop answering probes. The ports stay reserved."""


@dataclass(frozen=True)
class Start(TaskMessage):
    """Start a task, pinned to `cores` if there are any."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    cores: tuple[int, ...]
    port: int | None
    """The port that its server will listen on; None: it has none."""


@dataclass(frozen=True)
class Inspect(Request):
    """Report the states of these tasks' processes."""

    tasks: tuple[str, ...]
    gpus: bool = False
    """Report the memory of the host's GPUs too, which takes a moment."""
    counters: bool = False
    """Report what may slow each task down."""


@dataclass(frozen=True)
class DumpStacks(Request):
    """Write the stacks of these tasks' threads to their stream `stacks`."""

    tasks: tuple[str, ...]
    full: bool = False
    """Also the frames of C and C++, where py-spy is installed, and what each thread does in the kernel."""


@dataclass(frozen=True)
class FindWritten(Request):
    """Find what tasks have written in the copy of the folder."""


@dataclass(frozen=True)
class CheckFolder(Request):
    """Create the folder and write a file with this token in it; or read that file; or remove it."""

    path: str
    token: str
    action: FolderAction


@dataclass(frozen=True)
class Stop:
    """Send SIGTERM to these tasks, and SIGKILL to their process groups `grace_s` seconds later (0: at once)."""

    tasks: tuple[str, ...]
    grace_s: float
    keeps_barrier: bool = False
    """They may still wait for each other at the barrier: they save a checkpoint together before they exit."""


@dataclass(frozen=True)
class Release:
    """Let the tasks of this attempt that wait at the barrier continue: with a turn for that turn, without one for good.

    With a turn, each task reads it as a line of JSON and may wait again; without one, it reads the end of the file. An
    empty turn lets a task that is not measured in turns continue.
    """

    attempt: int = 0
    turn: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Finish:
    """Clean up and exit."""


@dataclass(frozen=True)
class Heartbeat:
    """The sender is alive. Both sides send it."""

    time: Time
    """The sender's clock."""


# --- from an agent to the launcher


@dataclass(frozen=True)
class LoggedIn:
    """The shell on another host runs and starts the agent."""


@dataclass(frozen=True)
class Alive:
    """The first message of the agent itself, sent at once: the description may take a while."""

    time: Time


class Description(TypedDict):
    """What `description.describe()` returns, which says what each means."""

    host: Text
    python: Text
    executable: Text
    packages: Mapping[str, Text]
    cores: tuple[Core, ...]
    cores_in_use: tuple[Core, ...]
    core_limit: Amount | None
    cpu: Text
    memory_bytes: Count
    memory_free_bytes: Count
    disk_free_bytes: Count
    gpus: tuple[Text, ...]
    gpu_ids: tuple[Text, ...]
    gpu_uuids: tuple[Text, ...]
    gpu_processes: tuple[tuple[Text, Text, Text, Text], ...]
    gpus_hidden: Count
    gpu_devices: Count
    gpu_memory: tuple[Count, ...]
    gpu_cores: tuple[tuple[Core, ...], ...]
    gpu_topology: tuple[Text, ...]
    gpu_faults: tuple[Text, ...]
    driver: Text
    cuda_missing: tuple[Text, ...]
    os: Text
    machine: Text
    interfaces: Mapping[str, tuple[Text, ...]]
    busy: Annotated[float, Between(0, 1)]


@dataclass(frozen=True)
class Hello:
    """The host.

    Raises:
        ValueError: the description contradicts itself.
    """

    description: Description

    def __post_init__(self) -> None:
        host = self.description
        if not host["cores"]:
            raise ValueError("cores: there are none")
        for_each_gpu = (host["gpu_ids"], host["gpu_uuids"], host["gpu_memory"], host["gpu_cores"])
        if any(len(values) != len(host["gpus"]) for values in for_each_gpu):
            raise ValueError("gpus: their lists have different lengths")


@dataclass(frozen=True)
class Prepared(Reply):
    """The folder in which tasks run."""

    reply_to = Prepare
    requested: Text
    """The folder, `~` expanded."""
    actual: Text
    """The home folder if the requested one does not exist; empty if tasks cannot run there either."""
    digest: Text = ""
    """SHA-256 of the script; empty if it cannot be read."""
    copied: Text = ""
    """The folder with the unpacked copy."""
    reason: Reason = ""
    """Why it could not be unpacked."""


@dataclass(frozen=True)
class AgentEnded(Reply):
    """No earlier agent is left, or, with a reason, it could not be ended."""

    reply_to = EndAgent
    reason: Reason


@dataclass(frozen=True)
class Reserved(Reply):
    """The reserved ports, in the order of the request."""

    reply_to = Reserve
    ports: tuple[Port, ...]


@dataclass(frozen=True)
class NotReserved(Reply):
    """A port could not be reserved."""

    reply_to = Reserve
    port: Port
    reason: Reason


@dataclass(frozen=True)
class DialResult(Reply):
    """Why each target could not be reached, in the order of the request; an empty string if it could."""

    reply_to = Dial
    failures: tuple[Text, ...]


@dataclass(frozen=True)
class LinkSpeed(Reply):
    """Round-trip time and throughput of one TCP stream; zeros and a reason if the measurement failed."""

    reply_to = MeasureLink
    rtt_s: Seconds
    bytes_per_s: Amount
    reason: Reason


@dataclass(frozen=True)
class Inspected(Reply):
    """The processes of tasks that run, from /proc, by task."""

    reply_to = Inspect
    by_task = ("states", "waits", "cpu_s", "resident_bytes", "counters")
    states: Mapping[str, Text]
    """The state as in /proc/PID/stat: `R`, `S`, `T` (stopped by a signal), `D` (uninterruptible sleep), ..."""
    waits: Mapping[str, Text]
    """The kernel function that each sleeps in (/proc/PID/wchan); empty if unknown."""
    cpu_s: Mapping[str, Seconds] = field(default_factory=dict)
    """CPU time that each has used so far."""
    resident_bytes: Mapping[str, Count] = field(default_factory=dict)
    host: Mapping[str, Amount] = field(default_factory=dict)
    """CPU seconds since the start of the host: `busy_s` of all processes, `steal_s` given to other virtual machines;
    `cores`, the number of those online; `available_bytes`, the memory that new processes can use without swapping; if
    requested, `gpu_free_bytes` and `gpu_total_bytes` of the GPU with the least free memory."""
    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """If requested, what `agent_program.counters` counts of each task."""
    time: Time = 0.0


@dataclass(frozen=True)
class StacksDumped(Reply):
    """How the stacks of each task were found: `faulthandler`, `py-spy` or `/proc`; a reason if they were not."""

    reply_to = DumpStacks
    by_task = ("methods",)
    methods: Mapping[str, Text]


@dataclass(frozen=True)
class Written(Reply):
    """What tasks have written in the copy, relative to it."""

    reply_to = FindWritten
    names: tuple[Text, ...]
    """The first ones."""
    count: Count
    """The number of all files."""


@dataclass(frozen=True)
class FolderChecked(Reply):
    """Why the action failed; empty if it did not."""

    reply_to = CheckFolder
    reason: Reason


@dataclass(frozen=True)
class Started(TaskMessage):
    """A task was started."""

    pid: Pid
    time: Time


@dataclass(frozen=True)
class NotStarted(TaskMessage):
    """The program of a task could not be started."""

    reason: Reason


@dataclass(frozen=True)
class Listening(TaskMessage):
    """The task's server accepts connections on the task's port."""

    time: Time


@dataclass(frozen=True)
class Output(TaskMessage):
    """Whole lines of a task's stdout or stderr. A line over 64 KiB is split; a partial one is sent after a second."""

    stream: StreamName
    text: Annotated[str, MaxLength(MAX_OUTPUT)]
    """Bytes that are not UTF-8 are surrogates (`surrogateescape`)."""


@dataclass(frozen=True)
class Event(TaskMessage):
    """One JSON object that a task wrote to TFDIST_EVENTS_FD."""

    time: Time
    event: Mapping[str, Any]


@dataclass(frozen=True)
class Exited(TaskMessage):
    """A task has exited. `code` is negative for a signal, as in subprocess."""

    code: Annotated[int, Between(-64, 255)]
    time: Time
    peak_memory_bytes: Count
    cpu_s: Seconds
    oom_kills: Count = 0
    """Processes that the kernel killed for lack of memory in the task's cgroup while the task ran (`oom_kill` in
    memory.events, https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files)."""
    kernel_log: Text = ""
    """A line of the kernel log that says that the process was killed for lack of memory, if the log may be read."""


@dataclass(frozen=True)
class Stuck(TaskMessage):
    """A task did not end within some seconds of SIGKILL, and the agent no longer waits for it."""

    time: Time
    state: Text
    """State as in `Inspected`."""
    wait: Text


@dataclass(frozen=True)
class Terminated:
    """The agent received SIGTERM, and serves for `kill_wait_s` more: a scheduler ends the job."""


@dataclass(frozen=True)
class Leaving:
    """The agent stops its tasks and exits, without a request from the launcher."""

    reason: Reason


AnyRequest = Prepare | EndAgent | Reserve | Dial | MeasureLink | Inspect | DumpStacks | FindWritten | CheckFolder
ToAgent = AnyRequest | Configure | Package | CopyPart | CloseProbe | Start | Stop | Release | Finish | Heartbeat
Timed = Started | Listening | Event | Exited | Stuck
"""Times are seconds since 1970 by the host's clock; the channel converts these to this machine's clock."""
FromAgent = (
    LoggedIn | Alive | Hello | Prepared | AgentEnded | Reserved | NotReserved | DialResult | LinkSpeed | Inspected
    | StacksDumped | Written | FolderChecked | NotStarted | Output | Timed | Heartbeat | Terminated | Leaving
)  # fmt: skip


ENVELOPE = 100
"""Values of a message besides those of its event."""
MAX_OTHER = 1 << 20
"""Bytes of a message that is neither output nor an event."""


def _kind(message_class: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message_class.__name__).lower()


_FROM_AGENT: Mapping[str, type] = {_kind(message_class): message_class for message_class in get_args(FromAgent)}


def _in_one_line(text: str) -> str:
    return one_line(plain(text))


def encode(message: ToAgent) -> bytes:
    """The message as one line."""
    return to_line({"kind": _kind(type(message)), **vars(message)})


_SURROGATE = re.compile(rb"\\u[dD]")
"""In a line that may have surrogates: to look at each text of a thousand messages a second takes a tenth of a core."""


def decode(line: bytes) -> FromAgent:
    """The message in a line from an agent. Its fields are as annotated; JSON lists become tuples.

    Only the output and events of tasks may hold control characters and line breaks; the launcher prints what is in the
    other messages, in lines of its own. The folders of `Prepared` keep line breaks: tasks run in them. U+FFFD takes the
    place of lone surrogates as in `readable`.

    Raises:
        ValueError: not a message, for example the output of a login script.
    """
    if too_many_values(line, MAX_VALUES + ENVELOPE):
        raise ValueError(f"a message of more than {MAX_VALUES:,} values from the agent")
    try:
        values = parse_json(line.decode("ascii"))  # an agent escapes all else
        message_class = _FROM_AGENT[values["kind"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"not a message from an agent: {line[:200]!r}") from error
    try:
        if message_class is not Output and _SURROGATE.search(line):
            values = with_texts(values, replace_surrogates)
        if message_class not in (Output, Event):
            if len(line) > MAX_OTHER:
                raise ValueError(f"it has more than {MAX_OTHER >> 20} MiB")
            values = with_texts(values, plain if message_class is Prepared else _in_one_line)
        message: FromAgent = from_json(values, message_class)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a message from an agent: {values['kind']}: {error}") from error
    return message
