"""Messages within the launcher, which no agent sends, and the type of all messages of a job."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tfdist.launch.agents.messages import FromAgent


@dataclass(frozen=True)
class AgentLost:
    """An agent's stream ended, or no message came for too long."""

    host: str
    reason: str
    time: float = 0.0
    """When the last message came from it."""


@dataclass(frozen=True)
class HostReady:
    """A host that the job has lost, or that is new, can be used by the next attempt."""

    host: str


@dataclass(frozen=True)
class Note:
    """A note for the user about a host."""

    host: str
    text: str


@dataclass(frozen=True)
class Stopped:
    """The launcher stops these tasks: their exits after this entry are not failures."""

    tasks: tuple[str, ...]
    grace_s: float = 0.0
    """Seconds between SIGTERM and SIGKILL; 0: SIGKILL at once."""
    time: float = 0.0
    reason: str = ""
    """What has happened, as in `worker-1 failed`; empty if the job has succeeded, and its servers are stopped."""


@dataclass(frozen=True)
class Restarting:
    """The launcher starts these tasks again, once they have ended."""

    attempt: int
    """The number of the attempt that starts."""
    tasks: tuple[str, ...]
    whole: bool
    """They are all tasks of the job from now on; False: the other tasks continue."""
    reason: str
    """What has happened, and what is restarted from where."""
    delay_s: float = 0.0
    """Seconds before the start."""
    time: float = 0.0
    hosts: tuple[str, ...] = ()
    """Hosts of the tasks; empty: as before."""


@dataclass(frozen=True)
class Interrupted:
    """The launcher received this signal."""

    signal: int
    by: str = ""
    """The command that asked for it; empty for a signal from outside."""
    of_agent: bool = False
    """An agent has received it; if it is a scheduler's, the launcher will, too."""


@dataclass(frozen=True)
class NextTurn:
    """Release the tasks that wait at the barrier: for this turn, or for good (None)."""

    turn: Mapping[str, Any] | None
    """JSON that each task receives."""


Message = FromAgent | AgentLost | HostReady | Interrupted | NextTurn | Note | Restarting | Stopped
OnMessage = Callable[[Message], None]
"""Called with every message of a running job. The loop waits for it, so it must return quickly."""
