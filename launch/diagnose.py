"""What became of a job, from the history of its events. Pure: tested by replaying histories."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tfdist.launch.agents.messages import AgentLost, Exited, Interrupted, NotStarted
from tfdist.launch.errors import ExitCode
from tfdist.launch.str_enum import StrEnum

SECONDARY = (
    "Collective ops is aborted by",
    "stopped sending heartbeats",
    "Socket closed",
    "GRPC_STATUS_UNAVAILABLE",
    "failed to connect to all addresses",
)
"""What TensorFlow says in a task that dies because another one did."""


class Status(StrEnum):
    """How a job ended."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class TimedOut:
    """The job ran into its time limit of so many seconds."""

    timeout_s: float


@dataclass(frozen=True)
class Stopped:
    """From here on tasks end because we tell them to."""


Entry = Exited | NotStarted | AgentLost | Interrupted | TimedOut | Stopped


@dataclass(frozen=True)
class Outcome:
    """The end of a job, told in a way that a person can act on."""

    status: Status
    exit_code: int
    reason: str
    """One sentence; empty if all is well."""
    culprit: str | None = None
    """The task that failed first, of itself."""
    casualties: Mapping[str, str] = field(default_factory=dict)
    """Tasks that then failed too, and how."""
    exits: Mapping[str, Exited] = field(default_factory=dict)
    wall_s: float = 0.0
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each task emitted as its `record`."""
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What each host said of itself."""
    run_dir: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": 1, **asdict(self)}


def diagnose(history: Sequence[Entry], tails: Mapping[str, str], hosts: Mapping[str, str] | None = None) -> Outcome:
    """The outcome of a whole history.

    Args:
        history: what happened, in the order in which the launcher learnt of it.
        tails: the last lines of each task's stderr, which tell whether it died of another one's death.
        hosts: the host of each task, where it is worth saying.
    """
    places = {task: f" on {host}" for task, host in (hosts or {}).items()}
    exits = {entry.task: entry for entry in history if isinstance(entry, Exited)}
    for entry in history:
        if isinstance(entry, Interrupted):
            code = ExitCode.INTERRUPTED if entry.signal == signal.SIGINT else 128 + entry.signal
            name = signal.Signals(entry.signal).name
            return Outcome(Status.INTERRUPTED, code, f"interrupted by {name}", exits=exits)
        if isinstance(entry, TimedOut):
            reason = f"not finished after --timeout {entry.timeout_s:g} s"
            return Outcome(Status.TIMEOUT, ExitCode.TIMEOUT, reason, exits=exits)
        if isinstance(entry, AgentLost):
            reason = f"lost the agent on {entry.host}: {entry.reason.splitlines()[-1]}"
            return Outcome(Status.FAILED, ExitCode.HOST_LOST, reason, exits=exits)
        if isinstance(entry, NotStarted):
            reason = f"{entry.task} could not be started{places.get(entry.task, '')}: {entry.reason}"
            return Outcome(Status.FAILED, 127, reason, culprit=entry.task, exits=exits)
        if isinstance(entry, Exited) and entry.code != 0:
            return _failure(history, tails, exits, places)
        if isinstance(entry, Stopped):
            break
    return Outcome(Status.OK, ExitCode.SUCCESS, "", exits=exits)


def _failure(
    history: Sequence[Entry], tails: Mapping[str, str], exits: Mapping[str, Exited], places: Mapping[str, str]
) -> Outcome:
    """Among the tasks that ended by themselves: who was first, and who followed.

    A task whose last words name another's death is no culprit while there is a better one. If all of them speak of
    others, then one that had left early with exit code 0 is: its peers need it for every step.
    """
    until = next((at for at, entry in enumerate(history) if isinstance(entry, Stopped)), len(history))
    own = sorted((entry for entry in history[:until] if isinstance(entry, Exited)), key=lambda entry: entry.time)
    failed = [entry for entry in own if entry.code != 0]
    first_hand = [entry for entry in failed if not died_of_another(tails.get(entry.task, ""))]
    left_early = [entry for entry in own if entry.code == 0 and entry.time <= failed[0].time]
    culprit = (first_hand or left_early or failed)[0]
    casualties = {
        entry.task: how(entry.code) + places.get(entry.task, "") for entry in failed if entry.task != culprit.task
    }
    code = culprit.code or failed[0].code
    ending = "ended early, with exit code 0, while others still needed it" if culprit.code == 0 else how(culprit.code)
    return Outcome(
        Status.FAILED,
        code if code > 0 else 128 - code,
        f"{culprit.task} {ending}{places.get(culprit.task, '')}",
        culprit=culprit.task,
        casualties=casualties,
        exits=exits,
    )


def died_of_another(tail: str) -> bool:
    """Whether these last lines of a task's stderr speak of a peer's death."""
    return any(text in tail for text in SECONDARY)


def how(code: int) -> str:
    """In words: `exited with code 1`, or `was killed by SIGKILL (the kernel does that when memory runs out)`."""
    if code >= 0:
        return f"exited with code {code}"
    hint = " (the kernel does that when memory runs out)" if -code == signal.SIGKILL else ""
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was killed by {name}{hint}"
