"""What a survey of hosts returns (`survey.py`), and the rows that the checks make of it (`checks.py`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfdist.launch.agents.messages import Prepared
from tfdist.launch.doctor.links import Link
from tfdist.launch.errors import Problem
from tfdist.launch.hosts.host import Host
from tfdist.launch.str_enum import StrEnum


class Verdict(StrEnum):
    """Result of one check. A job cannot start if any check failed; after a warning it may be slow or fail later."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class CheckResult:
    """One check of one host, or of one link between two."""

    check: str
    host: str
    verdict: Verdict
    text: str
    fix: str = ""
    """Empty if the verdict is ok."""


@dataclass(frozen=True)
class Survey:
    """The state of all hosts. Later fields lack hosts that were lost earlier."""

    hosts: tuple[Host, ...]
    hellos: Mapping[Host, Mapping[str, Any]]
    """Each host's description; missing for hosts that could not be connected."""
    lost: Mapping[Host, Problem] = field(default_factory=dict)
    """Hosts that could not be connected, or whose agent was lost."""
    behind_s: Mapping[Host, float] = field(default_factory=dict)
    """How far each clock is behind this machine's."""
    tasks: Mapping[Host, int] = field(default_factory=dict)
    """Number of workers that a launch would place on each host."""
    folders: Mapping[Host, Prepared] = field(default_factory=dict)
    ports: Mapping[Host, tuple[int, ...]] = field(default_factory=dict)
    """The reserved ports."""
    port_problems: Mapping[Host, Problem] = field(default_factory=dict)
    """Hosts whose ports could not be reserved."""
    dial_errors: Mapping[tuple[Host, Host, int], str] = field(default_factory=dict)
    """Why a port cannot be reached, by source, target and port; empty if it can."""
    links: Mapping[tuple[Host, Host], Link | Problem] = field(default_factory=dict)
    tf_config: bool = False
    """TF_CONFIG is set in the launcher's environment."""


def can_start(rows: Sequence[CheckResult]) -> bool:
    """Whether no check failed."""
    return all(row.verdict is not Verdict.FAILED for row in rows)
