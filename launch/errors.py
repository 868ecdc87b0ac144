"""The exceptions that users see, the problems that they report, and the exit codes. Any other exception is a bug."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """What the process ends with. Anything else is the culprit task's own code, or 128+n for a signal n."""

    SUCCESS = 0
    """Done; of a launch: all leading tasks exited with 0."""
    FAILED = 1
    """A failure without a code of its own: an arm of a bench failed or became slower, a training has no record, a
    program failed under a strategy (`check`), a collective gave a wrong result, a file was not written."""
    USAGE = 2
    """Wrong input. Nothing was started."""
    NOTHING_COMPARED = 3
    """`compare` compared nothing, or `bench --against --fail-slower` did not compare an arm."""
    INCONCLUSIVE = 4
    """An arm may be slower than the bound of `compare --fail-slower`."""
    PREEMPTED = 42
    """A checkpoint was saved and the job can be resumed: of a task, `restart me`."""
    HOST_LOST = 69
    """A host cannot be connected, failed a check, or was lost."""
    PEER_LOST = 70
    """A task of between-graph or in-graph ended because the others no longer answer."""
    START_TIMEOUT = 75
    """Tasks were not started within --start-timeout."""
    STALL = 76
    """No step from any task within --stall-timeout."""
    TIMEOUT = 124
    """The job was stopped after --timeout."""
    NOT_STARTED = 127
    """A task's program could not be started."""
    INTERRUPTED = 130
    """Ctrl-C. SIGHUP, as a terminal that is closed sends, is 129, and SIGTERM 143."""


SIGNALS = 128
"""An exit code above it is this number and that of a signal."""


class TfdistError(Exception):
    """A sentence for the user: what failed, with the value, and how to fix it. The command exits with `exit_code`."""

    def __init__(self, sentence: str, exit_code: int = ExitCode.USAGE) -> None:
        super().__init__(sentence)
        self.exit_code = int(exit_code)


class MissingHardwareError(TfdistError):
    """The configuration needs hosts, devices or tasks that are missing here: a bench refuses the arm only."""


@dataclass(frozen=True)
class Problem:
    """A fault and how to fix it. As a string: `host: what; fix`."""

    what: str
    fix: str
    host: str = ""
    """Empty if `what` names the hosts, or if there is only this machine."""

    @property
    def sentence(self) -> str:
        """`what; fix`, for a message that names the host elsewhere."""
        return f"{self.what}; {self.fix}"

    def __str__(self) -> str:
        return f"{self.host}: {self.sentence}" if self.host else self.sentence


def raise_problems(problems: Iterable[Problem], exit_code: int = ExitCode.HOST_LOST, most: int | None = None) -> None:
    """Do nothing if there are no problems.

    Args:
        problems: each becomes one line; the same problem of several hosts is one line that names them all.
        exit_code: of the exception.
        most: number of lines before the rest is counted; None: all.

    Raises:
        TfdistError: there is a problem.
    """
    hosts: dict[str, list[str]] = {}
    for problem in problems:
        hosts.setdefault(problem.sentence, []).append(problem.host)
    lines = [": ".join(filter(None, (", ".join(filter(None, names)), sentence))) for sentence, names in hosts.items()]
    if most is not None and len(lines) > most:
        lines = [*lines[:most], f"and {len(lines) - most} more"]
    if lines:
        raise TfdistError("\n".join(lines), exit_code)
