"""The protocol between launcher and agent: one JSON object per line. `agent.py` implements the other side.

A message is a dataclass in one of the two unions below. Its kind is the class name in snake case.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, get_args

# --- from the launcher to an agent


@dataclass(frozen=True)
class Prepare:
    """Unpack the tfdist package and check that tasks can run in `cwd` (`~` is expanded on the host)."""

    package: str
    """A zip in base64; empty if tfdist is installed on the host."""
    cwd: str
    home_fallback: bool
    """Whether tasks run in the home folder if `cwd` does not exist."""


@dataclass(frozen=True)
class Reserve:
    """Reserve these ports (0: any free one). With a token, answer probes on them until `CloseProbe`."""

    ports: tuple[int, ...]
    token: str = ""


@dataclass(frozen=True)
class Dial:
    """Try to connect to these (address, port) pairs."""

    targets: tuple[tuple[str, int], ...]
    token: str
    timeout_s: float


@dataclass(frozen=True)
class MeasureLink:
    """Measure the link to a peer that answers probes at this port, for `seconds`."""

    address: str
    port: int
    token: str
    seconds: float


@dataclass(frozen=True)
class CloseProbe:
    """Stop answering probes. The ports stay reserved."""


@dataclass(frozen=True)
class Start:
    """Start a task, pinned to `cores` if there are any."""

    task: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    cores: tuple[int, ...]


@dataclass(frozen=True)
class Stop:
    """Send SIGTERM to these tasks, and SIGKILL `grace_s` seconds later (0: SIGKILL at once)."""

    tasks: tuple[str, ...]
    grace_s: float


@dataclass(frozen=True)
class Release:
    """Open the start barrier."""


@dataclass(frozen=True)
class Finish:
    """Clean up and exit."""


@dataclass(frozen=True)
class Heartbeat:
    """The sender is alive. Both sides send it."""


# --- from an agent to the launcher


@dataclass(frozen=True)
class Hello:
    """The first message: the host, as `agent.describe()` returns it."""

    description: Mapping[str, Any]


@dataclass(frozen=True)
class Prepared:
    """The folder in which tasks run."""

    requested: str
    """With `~` expanded."""
    actual: str
    """The home folder if the requested one does not exist; empty if tasks cannot run there either."""


@dataclass(frozen=True)
class Reserved:
    """The reserved ports, in the order of the request."""

    ports: tuple[int, ...]


@dataclass(frozen=True)
class NotReserved:
    """A port could not be reserved."""

    port: int
    reason: str


@dataclass(frozen=True)
class DialResult:
    """Why each target could not be reached, in the order of the request; an empty string if it could."""

    failures: tuple[str, ...]


@dataclass(frozen=True)
class LinkSpeed:
    """Round-trip time and throughput of one TCP stream; zeros and a reason if the measurement failed."""

    rtt_s: float
    bytes_per_s: float
    reason: str


@dataclass(frozen=True)
class Started:
    """A task was started."""

    task: str
    pid: int
    time: float


@dataclass(frozen=True)
class NotStarted:
    """The program of a task could not be started."""

    task: str
    reason: str


@dataclass(frozen=True)
class Output:
    """Whole lines of a task's stdout or stderr. A line over 64 KiB is split."""

    task: str
    stream: str
    text: str
    """Bytes that are not UTF-8 are surrogates (`surrogateescape`)."""


@dataclass(frozen=True)
class Event:
    """One JSON object that a task wrote to TFDIST_EVENTS_FD."""

    task: str
    time: float
    event: Mapping[str, Any]


@dataclass(frozen=True)
class Exited:
    """A task has exited. `code` is negative for a signal, as in subprocess; `time` is the host's clock."""

    task: str
    code: int
    time: float
    peak_memory_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class Leaving:
    """The agent stops its tasks and exits, without a request from the launcher."""

    reason: str


# --- within the launcher, never sent


@dataclass(frozen=True)
class AgentLost:
    """An agent's stream ended, or no message came for too long."""

    host: str
    reason: str


@dataclass(frozen=True)
class Note:
    """A remark about a host."""

    host: str
    text: str


@dataclass(frozen=True)
class Interrupted:
    """The launcher received this signal."""

    signal: int


ToAgent = Prepare | Reserve | Dial | MeasureLink | CloseProbe | Start | Stop | Release | Finish | Heartbeat
Reply = Hello | Prepared | Reserved | NotReserved | DialResult | LinkSpeed
FromAgent = Reply | Started | NotStarted | Output | Event | Exited | Heartbeat | Leaving
Message = FromAgent | AgentLost | Interrupted | Note


def _kind(message_class: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message_class.__name__).lower()


_FROM_AGENT: Mapping[str, type] = {_kind(message_class): message_class for message_class in get_args(FromAgent)}


def encode(message: ToAgent) -> bytes:
    """The message as one line."""
    return json.dumps({"kind": _kind(type(message)), **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> FromAgent:
    """The message in a line from an agent. JSON lists become tuples.

    Raises:
        ValueError: not a message, for example the output of a login script.
    """
    try:
        values = json.loads(line)
        message_class = _FROM_AGENT[values.pop("kind")]
        message: FromAgent = message_class(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a message from an agent: {line[:200]!r}") from error
    return message
