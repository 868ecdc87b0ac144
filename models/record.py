"""What one run measured: raw windows of every rank, as frozen dataclasses that travel as versioned JSON.

Statistics are derived later, from these. No TensorFlow and no pandas: tasks and the launcher both use this file.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.str_enum import StrEnum

FORMAT = 1
BUSY_BEFORE = "busy_before"
"""Key in Record.hardware: the share of all cores (0..1) that was in use just before the run, by others then.

Only where this machine is one of the run's hosts: of the others nobody asked.
"""


class RecordStatus(StrEnum):
    """What became of a run."""

    OK = "ok"
    FAILED = "failed"
    REFUSED = "refused"
    """This machine cannot run it: no process was started."""
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Window:
    """A stretch of consecutive steps between two moments at which the device had really finished."""

    steps: int
    examples: int
    """What this rank's replicas (synchronous), or all workers together (asynchronous, applied) went through."""
    elapsed_s: float
    """time.perf_counter() at its end minus at its start."""
    loss: float | None
    """At its end: the mean over the global batch of the last step."""


@dataclass(frozen=True)
class RankRecord:
    """What one task measured of itself and emits as its `record` event."""

    task: str
    """`worker-0`; for an asynchronous job `chief-0`, which sees all workers."""
    host: str
    replicas: int
    warmup: tuple[Window, ...]
    windows: tuple[Window, ...]
    """The timed ones."""
    phases_s: Mapping[str, float]
    """Start-up, one after the other: `import`, `strategy`, `build` (until the first window), `trace` (the first step).

    And `first_step_end`, since the process was started.
    """
    examples_applied: int
    """Over the whole run, warm-up included, by this rank (asynchronous: by the job, from the counter on the ps)."""
    updates_applied: int
    """The optimizer's iterations at the end."""
    accuracy: float | None = None
    """On the held-out examples, 0..1, if they were evaluated."""
    peak_memory_bytes: int = 0
    cpu_s: float = 0.0
    affinity: tuple[int, ...] = ()
    software: Mapping[str, str] = field(default_factory=dict)
    """`tensorflow`, `keras` (with its engine), `python`, `tfdist`, `numpy`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The variables that change speed and were set."""


@dataclass(frozen=True)
class TaskUsage:
    """What the operating system says of one finished process (getrusage)."""

    peak_memory_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class Record:
    """One run of one arm, whatever came of it."""

    arm: str
    round: int
    spec: Mapping[str, Any]
    """TrainingSpec.to_json()."""
    status: str
    """`ok`, `failed`, `refused`, `timeout` or `interrupted`."""
    reason: str
    """One sentence; empty for `ok`."""
    exit_code: int
    ranks: tuple[RankRecord, ...] = ()
    usage: Mapping[str, TaskUsage] = field(default_factory=dict)
    """By task name; parameter servers and user programs included."""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    """The agent's hello: CPU model, cores, memory, GPUs, OS. Of the first host."""
    command: str = ""
    started: str = ""
    """UTC, ISO 8601."""
    wall_s: float = 0.0
    """From the first process's start to the last one's end."""
    run_dir: str = ""
    """The run's folder, relative to the folder of the bench; its logs are there."""
    git_commit: str = ""
    hosts: int = 1
    """On how many the job ran."""
    link: Mapping[str, float] = field(default_factory=dict)
    """The slowest way between neighbouring hosts, measured before: `bytes_per_s` of one TCP stream, `rtt_s`."""
    order: int = 0
    """Position in which the run was made, over the whole bench."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Record":
        """The record that `to_json` wrote.

        Raises:
            TfdistError: another format version, or not a whole record.
        """
        if data.get("format") != FORMAT:
            raise TfdistError(f"a record of format {data.get('format')!r}: this tfdist reads format {FORMAT}")
        values = {key: value for key, value in data.items() if key != "format"}
        try:
            values["ranks"] = tuple(rank_from_json(rank) for rank in values.get("ranks", ()))
            values["usage"] = {name: TaskUsage(**usage) for name, usage in values.get("usage", {}).items()}
            return cls(**values)
        except (TypeError, AttributeError, KeyError) as error:
            raise TfdistError(f"not a whole record: {error}") from None


def rank_from_json(data: Mapping[str, Any]) -> RankRecord:
    """The RankRecord that `dataclasses.asdict` made plain.

    Raises:
        TypeError, KeyError: it is not a whole one.
    """
    windows = {name: tuple(Window(**window) for window in data[name]) for name in ("warmup", "windows")}
    return RankRecord(**{**data, **windows, "affinity": tuple(data.get("affinity", ()))})
