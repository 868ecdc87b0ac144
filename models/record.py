"""The raw measurements of one run: the windows of every rank, as versioned JSON. Statistics are computed later.

No TensorFlow and no pandas: tasks and the launcher both use this file.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.str_enum import StrEnum

FORMAT = 1
BUSY_BEFORE = "busy_before"
"""Key in Record.hardware: the share of this machine's cores, 0..1, in use just before the run.

Missing if this machine is not one of the run's hosts.
"""


class RecordStatus(StrEnum):
    """How a run ended."""

    OK = "ok"
    FAILED = "failed"
    REFUSED = "refused"
    """These hosts cannot run it: no process was started."""
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Window:
    """Consecutive steps between two moments at which the device had finished all its work."""

    steps: int
    examples: int
    """Processed by the replicas of this rank; asynchronous: applied by all workers together."""
    elapsed_s: float
    """By time.perf_counter()."""
    loss: float | None
    """Mean over the global batch of its last step."""


@dataclass(frozen=True)
class RankRecord:
    """The measurements of one task, sent as its `record` event."""

    task: str
    """`worker-0`; in an asynchronous job `chief-0`, which measures all workers."""
    host: str
    replicas: int
    warmup: tuple[Window, ...]
    windows: tuple[Window, ...]
    """The timed windows."""
    phases_s: Mapping[str, float]
    """Seconds of each start-up phase: `import`, `strategy`, `build` (until the first window), `trace` (the first step).

    `first_step_end`: from the start of the process to the end of the first step.
    """
    examples_applied: int
    """In the whole run, warm-up included, by this rank; asynchronous: by all workers, from a counter on the ps."""
    updates_applied: int
    """The optimizer's iterations at the end."""
    accuracy: float | None = None
    """On the held-out examples, 0..1; None: not evaluated."""
    peak_memory_bytes: int = 0
    cpu_s: float = 0.0
    affinity: tuple[int, ...] = ()
    software: Mapping[str, str] = field(default_factory=dict)
    """`tensorflow`, `keras` (with its engine), `python`, `tfdist`, `numpy`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that affect speed."""


@dataclass(frozen=True)
class TaskUsage:
    """Resource usage of one finished process, from getrusage."""

    peak_memory_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class Record:
    """One run of one arm, successful or not."""

    arm: str
    round: int
    spec: Mapping[str, Any]
    """TrainingSpec.to_json()."""
    status: RecordStatus
    reason: str
    """One sentence; empty for `ok`."""
    exit_code: int
    ranks: tuple[RankRecord, ...] = ()
    usage: Mapping[str, TaskUsage] = field(default_factory=dict)
    """By task name; parameter servers and user programs included."""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    """CPU model, cores, memory, GPUs and OS of the first host."""
    command: str = ""
    started: str = ""
    """UTC, ISO 8601."""
    wall_s: float = 0.0
    """From the start of the first process to the end of the last one."""
    run_dir: str = ""
    """The run's folder with its logs, relative to the folder of the bench."""
    git_commit: str = ""
    hosts: int = 1
    """Number of hosts of the job."""
    link: Mapping[str, float] = field(default_factory=dict)
    """The slowest link between neighbouring hosts, measured before: `bytes_per_s` of one TCP stream, `rtt_s`."""
    order: int = 0
    """Position among all runs of the bench."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Record":
        """The inverse of `to_json`.

        Raises:
            TfdistError: another format version, or an incomplete record.
        """
        if data.get("format") != FORMAT:
            raise TfdistError(f"a record of format {data.get('format')!r}: this tfdist reads format {FORMAT}")
        values = {key: value for key, value in data.items() if key != "format"}
        try:
            values["ranks"] = tuple(rank_from_json(rank) for rank in values.get("ranks", ()))
            values["usage"] = {name: TaskUsage(**usage) for name, usage in values.get("usage", {}).items()}
            record = cls(**values)
            return replace(record, status=RecordStatus(record.status))
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            raise TfdistError(f"incomplete record: {error}") from None


def rank_from_json(data: Mapping[str, Any]) -> RankRecord:
    """The inverse of `dataclasses.asdict` on a RankRecord.

    Raises:
        TypeError, KeyError: incomplete.
    """
    windows = {name: tuple(Window(**window) for window in data[name]) for name in ("warmup", "windows")}
    return RankRecord(**{**data, **windows, "affinity": tuple(data.get("affinity", ()))})
