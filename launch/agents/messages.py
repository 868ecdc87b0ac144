"""What launcher and agent say to each other: one JSON object a line. `agent.py` has the other side."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Prepare:
    """To the agent: unpack our package for tasks, and look whether they can run in `cwd` (`~` is their home)."""

    package: str
    """A zip in base64; empty where tfdist is installed."""
    cwd: str
    or_home: bool
    """Without that folder tasks run in the home folder; else it must be there."""


@dataclass(frozen=True)
class Reserve:
    """To the agent: hold these ports (0: any free one). With a token, answer peers on them until `Hush`."""

    ports: tuple[int, ...]
    token: str = ""


@dataclass(frozen=True)
class Dial:
    """To the agent: try to reach peers' ports."""

    targets: tuple[tuple[str, int], ...]
    """Address and port."""
    token: str
    timeout_s: float


@dataclass(frozen=True)
class Measure:
    """To the agent: measure the way to a peer, which answers at this port."""

    address: str
    port: int
    token: str
    seconds: float


@dataclass(frozen=True)
class Hush:
    """To the agent: answer no more on the reserved ports; they stay held."""


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
class Prepared:
    """From the agent: tasks can run, and in which folder."""

    cwd: str
    as_asked: bool
    """False: the home folder, since the one that was asked for is not there."""


@dataclass(frozen=True)
class Unprepared:
    """From the agent: tasks cannot run, and why."""

    reason: str


@dataclass(frozen=True)
class Dialled:
    """From the agent: why each target could not be reached, in the order asked; empty if it could."""

    failures: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """From the agent: round-trip time and throughput of one TCP stream; a reason if they could not be measured."""

    rtt_s: float
    bytes_per_s: float
    reason: str


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
class Note:
    """Not sent by anybody: what the launcher has to say of a host."""

    host: str
    text: str


@dataclass(frozen=True)
class Interrupted:
    """Not sent by anybody: the launcher itself got this signal."""

    signal: int


ToAgent = Prepare | Reserve | Dial | Measure | Hush | Start | Stop | Release | Finish | Heartbeat
BeforeStart = Hello | Prepared | Unprepared | Reserved | Refused | Dialled | Measured
FromAgent = BeforeStart | Started | NotStarted | Output | Event | Exited | Heartbeat | Leaving
Message = FromAgent | AgentLost | Interrupted | Note

_KINDS = {
    "prepare": Prepare,
    "reserve": Reserve,
    "dial": Dial,
    "measure": Measure,
    "hush": Hush,
    "start": Start,
    "stop": Stop,
    "release": Release,
    "finish": Finish,
    "heartbeat": Heartbeat,
    "prepared": Prepared,
    "unprepared": Unprepared,
    "reserved": Reserved,
    "dialled": Dialled,
    "measured": Measured,
    "refused": Refused,
    "started": Started,
    "not_started": NotStarted,
    "output": Output,
    "event": Event,
    "exited": Exited,
    "leaving": Leaving,
}
_LISTS = ("reserved", "dialled")
"""Kinds whose one value is a list."""
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
        if kind in _LISTS:
            values = {name: tuple(value) for name, value in values.items()}
        message: FromAgent = _KINDS[kind](**values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a message of an agent: {line[:200]!r}") from error
    return message
