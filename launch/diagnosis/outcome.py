"""How a job ended."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfdist.launch.agents.messages import Exited
from tfdist.launch.attempts import Attempt
from tfdist.launch.str_enum import StrEnum


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
    not_restarted: str = ""
    """Why the job was not restarted after its last failure; empty if no restart was asked for. Before that
    decision: why a restart would not help."""
    signal: int = 0
    """That interrupted the launcher; 0: none did."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": 1, **asdict(self)}
