"""Why a job ended as it did, from the history of its messages. No I/O: tests replay histories."""

import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfdist.launch.agents.messages import AgentLost, Exited, Interrupted, NotStarted, Stopped
from tfdist.launch.errors import ExitCode
from tfdist.launch.history import Failed, History, StartTimedOut, TimedOut
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.job import Job
from tfdist.launch.str_enum import StrEnum

PEER_FAILURES = (
    "Collective ops is aborted by",
    "stopped sending heartbeats",
    "Socket closed",
    "GRPC_STATUS_UNAVAILABLE",
    "failed to connect to all addresses",
)
"""Errors that TensorFlow reports in a task whose peer has failed."""


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
    casualties: Mapping[str, str] = field(default_factory=dict)
    """How each other failed task ended, by task."""
    exits: Mapping[str, Exited] = field(default_factory=dict)
    wall_s: float = 0.0
    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The `record` event of each task."""
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Each host's description from its agent."""
    run_dir: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": 1, **asdict(self)}


def shows_cause(history: History, job: Job) -> bool:
    """Whether a failure so far cannot be the consequence of another one."""
    stopped_at = next((index for index, entry in enumerate(history.entries) if isinstance(entry, Stopped)), None)
    return any(
        isinstance(entry, Failed | AgentLost) or (isinstance(entry, Exited) and not _is_secondary(entry, history))
        for entry in history.entries[:stopped_at]
    )


def _is_secondary(exit: Exited, history: History) -> bool:
    return exit.code == 0 or any(text in line for line in history.tail(exit.task) for text in PEER_FAILURES)


def diagnose(history: History, job: Job) -> Outcome:
    """The outcome of a job that has ended."""
    hosts = {} if job.hosts == (LOCAL,) else {plan.task.name: plan.host.name for plan in job.plans}
    places = {task: f" on {host}" for task, host in hosts.items()}
    exits = {entry.task: entry for entry in history.entries if isinstance(entry, Exited)}
    for entry in history.entries:
        match entry:
            case Interrupted(number, by):
                code = ExitCode.INTERRUPTED if number == signal.SIGINT else 128 + number
                reason = f"stopped by '{by}'" if by else f"interrupted by {signal.Signals(number).name}"
                return Outcome(Status.INTERRUPTED, code, reason, exits=exits)
            case TimedOut(timeout_s):
                reason = f"stopped after --timeout {timeout_s:g} s"
                return Outcome(Status.TIMEOUT, ExitCode.TIMEOUT, reason, exits=exits)
            case StartTimedOut(timeout_s, tasks):
                reason = f"{', '.join(tasks)} not started within --start-timeout {timeout_s:g} s"
                return Outcome(Status.FAILED, ExitCode.START_TIMEOUT, reason, exits=exits)
            case AgentLost(host, reason):
                reason = f"lost the agent on {host}: {reason.splitlines()[-1]}"
                return Outcome(Status.FAILED, ExitCode.HOST_LOST, reason, exits=exits)
            case NotStarted(task, reason):
                reason = f"{task} could not be started{places.get(task, '')}: {reason}"
                return Outcome(Status.FAILED, ExitCode.NOT_STARTED, reason, culprit=task, exits=exits)
            case Exited(code=code) if code != 0:
                return _failure(history, exits, places)
            case Stopped():
                break
    return Outcome(Status.OK, ExitCode.SUCCESS, "", exits=exits)


def _failure(history: History, exits: Mapping[str, Exited], places: Mapping[str, str]) -> Outcome:
    # The culprit is the first task that failed without reporting a peer's failure. If all report one, it is a task
    # that had already exited with code 0: its peers needed it for every step.
    entries = history.entries
    stopped_at = next((index for index, entry in enumerate(entries) if isinstance(entry, Stopped)), len(entries))
    ended = sorted((entry for entry in entries[:stopped_at] if isinstance(entry, Exited)), key=lambda exit: exit.time)
    failed = [exit for exit in ended if exit.code != 0]
    independent = [exit for exit in failed if not _is_secondary(exit, history)]
    early = [exit for exit in ended if exit.code == 0 and exit.time <= failed[0].time]
    culprit = (independent or early or failed)[0]
    place = places.get(culprit.task, "")
    ending = describe_exit(culprit.code, place) + (" while other tasks still needed it" if culprit.code == 0 else "")
    code = culprit.code or failed[0].code
    return Outcome(
        Status.FAILED,
        code if code > 0 else 128 - code,
        f"{culprit.task} {ending}",
        culprit=culprit.task,
        casualties={
            exit.task: describe_exit(exit.code, places.get(exit.task, "")) for exit in failed if exit is not culprit
        },
        exits=exits,
    )


def describe_exit(code: int, place: str = "") -> str:
    """`exited with code 1 on h2`, or `was killed by SIGTERM on h2`; `place` is ` on h2` or empty."""
    if code >= 0:
        return f"exited with code {code}{place}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (the kernel does that when memory runs out)" if -code == signal.SIGKILL else ""
    return f"was killed by {name}{place}{hint}"
