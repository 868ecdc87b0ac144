"""What launcher and agent say to each other: one JSON object a line. `agent.py` has the other side."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Reserve:
    """To the agent: hold these ports (0: any free one)."""

    ports: tuple[int, ...]


@dataclass(frozen=True)
class Start:
    """To the agent: start this task. No `cores` means: leave it where it is."""

    task: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    cores: tuple[int, ...]


@dataclass(frozen=True)
class Stop:
    """To the agent: SIGTERM to these tasks, SIGKILL `grace_s` seconds later; with 0 SIGKILL at once."""

    tasks: tuple[str, ...]
    grace_s: float


@dataclass(frozen=True)
class Release:
    """To the agent: open the start barrier."""


@dataclass(frozen=True)
class Finish:
    """To the agent: clean up and go."""


@dataclass(frozen=True)
class Heartbeat:
    """Both ways: I am alive."""


@dataclass(frozen=True)
class Hello:
    """From the agent: its host (`agent.describe()`)."""

    description: Mapping[str, Any]


@dataclass(frozen=True)
class Reserved:
    """From the agent: the ports that it holds, in the order asked."""

    ports: tuple[int, ...]


@dataclass(frozen=True)
class Refused:
    """From the agent: a port that it could not get."""

    port: int
    reason: str


@dataclass(frozen=True)
class Started:
    """From the agent: a task runs."""

    task: str
    pid: int
    time: float


@dataclass(frozen=True)
class NotStarted:
    """From the agent: a task's program could not be started."""

    task: str
    reason: str


@dataclass(frozen=True)
class Output:
    """From the agent: whole lines of a task's stdout or stderr (a line over 64 KiB comes in pieces)."""

    task: str
    stream: str
    text: str
    """Bytes that are not UTF-8 are surrogates (`surrogateescape`)."""


@dataclass(frozen=True)
class Event:
    """From a task, through the agent: one line that it wrote to TFDIST_EVENTS_FD."""

    task: str
    time: float
    event: Mapping[str, Any]


@dataclass(frozen=True)
class Exited:
    """From the agent: a task has ended. `code` is negative for a signal (as in subprocess), `time` the host's clock."""

    task: str
    code: int
    time: float
    peak_memory_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class Leaving:
    """From the agent: it ends of itself, and its tasks with it."""

    reason: str


@dataclass(frozen=True)
class AgentLost:
    """Not sent by anybody: what the launcher notes when an agent's stream ends or falls silent."""

    host: str
    reason: str


@dataclass(frozen=True)
class Interrupted:
    """Not sent by anybody: the launcher itself got this signal."""

    signal: int


ToAgent = Reserve | Start | Stop | Release | Finish | Heartbeat
FromAgent = Hello | Reserved | Refused | Started | NotStarted | Output | Event | Exited | Heartbeat | Leaving
Message = FromAgent | AgentLost | Interrupted

_KINDS = {
    "reserve": Reserve,
    "start": Start,
    "stop": Stop,
    "release": Release,
    "finish": Finish,
    "heartbeat": Heartbeat,
    "reserved": Reserved,
    "refused": Refused,
    "started": Started,
    "not_started": NotStarted,
    "output": Output,
    "event": Event,
    "exited": Exited,
    "leaving": Leaving,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encode(message: ToAgent) -> bytes:
    """One line."""
    return json.dumps({"kind": _NAMES[type(message)], **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> FromAgent:
    """What an agent said.

    Raises:
        ValueError: it is not a message; a login script that prints something can cause this.
    """
    try:
        values = json.loads(line)
        kind = values.pop("kind")
        if kind == "hello":
            return Hello(values)
        if kind == "reserved":
            return Reserved(tuple(values["ports"]))
        message: FromAgent = _KINDS[kind](**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a message of an agent: {line[:200]!r}") from error
    return message
