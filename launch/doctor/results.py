"""What a look at hosts has found (`survey.py` looks), and the rows in which it is judged (`doctor.py` judges)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfdist.launch.doctor.links import Link
from tfdist.launch.hosts.host import Host
from tfdist.launch.str_enum import StrEnum


class Verdict(StrEnum):
    """Of one check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class CheckResult:
    """One check of one host, or of one way between two."""

    check: str
    host: str
    verdict: Verdict
    text: str
    mend: str = ""
    """What to do about it; empty if there is nothing to be done."""


@dataclass(frozen=True)
class TaskFolder:
    """In which folder tasks would run."""

    wanted: str
    found: str = ""
    """Empty: there is none."""


@dataclass(frozen=True)
class Survey:
    """All that was found out. A host that was lost on the way is not in what came later."""

    hosts: tuple[Host, ...]
    hellos: Mapping[Host, Mapping[str, Any]]
    """What each agent says of its host; without one the host could not be reached."""
    lost: Mapping[Host, str] = field(default_factory=dict)
    """What was last heard of hosts that have no agent, or have it no more."""
    behind_s: Mapping[Host, float] = field(default_factory=dict)
    """How far each clock is behind ours."""
    tasks: Mapping[Host, int] = field(default_factory=dict)
    """How many workers each would get."""
    folders: Mapping[Host, TaskFolder] = field(default_factory=dict)
    ports: Mapping[Host, tuple[int, ...]] = field(default_factory=dict)
    """Those that are held."""
    refused: Mapping[Host, tuple[int, str]] = field(default_factory=dict)
    """A port that could not be had, and why."""
    dialled: Mapping[tuple[Host, Host, int], str] = field(default_factory=dict)
    """From a host to a port of another, or of itself: why it cannot be reached; empty if it can."""
    links: Mapping[tuple[Host, Host], Link | str] = field(default_factory=dict)
    """How good the way is, or why it could not be measured."""
    tf_config: bool = False
    """TF_CONFIG is in the launcher's own environment."""


def can_start(rows: Sequence[CheckResult]) -> bool:
    """Whether a job could start."""
    return all(row.verdict is not Verdict.FAILED for row in rows)
