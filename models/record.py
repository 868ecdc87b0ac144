"""The raw measurements of one run: the windows of every rank, as versioned JSON. Statistics are computed later.

No TensorFlow and no pandas: tasks and the launcher both use this file.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.str_enum import StrEnum

FORMAT = 2
READABLE = (1, FORMAT)
"""Format 1: a record is one training in fresh processes, and its windows have no usage."""
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
class GpuReading:
    """One GPU at the end of a window."""

    index: int
    memory_bytes: int
    """In use by all processes."""
    utilization: float
    """Share of the last sampling period in which a kernel ran, 0..1."""
    power_w: float
    energy_j: float | None
    """During the window, by the GPU's counter; None: it has none."""
    sm_clock_mhz: int
    throttle: str
    """Why its clock is lowered; empty: it is not."""


@dataclass(frozen=True)
class WindowUsage:
    """What this process and its host used during a window."""

    cpu_s: float
    """CPU seconds of this process."""
    busy_s: float
    """CPU seconds of all processes of the host, this one included."""
    steal_s: float
    """CPU seconds that the hypervisor gave to other virtual machines."""
    resident_bytes: int
    """Memory of this process in RAM at the window's end."""
    gpus: tuple[GpuReading, ...] = ()
    """This task's GPUs at the window's end."""


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
    usage: WindowUsage | None = None


@dataclass(frozen=True)
class Storage:
    """The variables on one device, and for a parameter server what each step of a worker asks of it."""

    variables: int = 0
    """The model's and the optimizer's; shards count each."""
    bytes: int = 0
    reads: int = 0
    """Requests in a step that read a variable."""
    read_bytes: int = 0
    updates: int = 0
    """Other requests in a step: updates of variables."""
    update_bytes: int = 0
    """Of their arguments: gradients, and the optimizer's numbers."""


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
    resumed_at: int = 0
    """The step of the checkpoint that it continued from: its windows are those of later steps."""
    accuracy: float | None = None
    """On the held-out examples, 0..1; None: not evaluated."""
    peak_memory_bytes: int = 0
    gpu_peak_bytes: tuple[int, ...] = ()
    """The most memory that TensorFlow has allocated on each GPU of this task; empty for an asynchronous job."""
    cpu_s: float = 0.0
    affinity: tuple[int, ...] = ()
    software: Mapping[str, str] = field(default_factory=dict)
    """`tensorflow`, `keras` (with its engine), `python`, `tfdist`, `numpy`.

    With GPUs also `cuda`, `cudnn`, `nccl`, `driver`, `tf32` (on or off), and `nvidia-ml-py`: its version, or why
    windows have no GPU readings.
    """
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that affect speed."""
    storage: Mapping[str, Storage] = field(default_factory=dict)
    """By device of this task, `CPU:0`, or by parameter server, `ps-0`."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluator measured at one checkpoint."""

    step: int
    accuracy: float
    """On the held-out examples, 0..1."""


@dataclass(frozen=True)
class HostUsage:
    """What the processes of one host used from just before a turn to just after it."""

    seconds: float
    cores: int
    cpu_s: Mapping[str, float]
    """CPU seconds of the arm's tasks on this host, servers included, by task."""
    busy_s: float
    """CPU seconds of all processes."""
    steal_s: float
    """CPU seconds that the hypervisor gave to other virtual machines."""

    @property
    def others(self) -> float:
        """The share of all cores, 0..1, that processes of others used."""
        return max(0.0, self.busy_s - sum(self.cpu_s.values())) / (self.seconds * self.cores)

    @property
    def steal(self) -> float:
        """The stolen share of all cores, 0..1."""
        return self.steal_s / (self.seconds * self.cores)


@dataclass(frozen=True)
class TurnRecord:
    """One turn of one arm: its timed windows by task. A line of turns.jsonl."""

    arm: str
    round: int
    """Counted from 1, over all incarnations."""
    incarnation: int
    """The start of the arm's processes, counted from 1."""
    group: int
    """Arms whose turns were interleaved; counted from 1."""
    order: int
    """Position among all turns of the bench."""
    started: str
    """UTC, ISO 8601."""
    windows: Mapping[str, tuple[Window, ...]]
    hosts: tuple[HostUsage, ...] = ()
    repeated: bool = False
    """It replaces a disturbed turn of the same round."""
    observed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By task, what it reported about the turn besides windows, by name: JSON. docs/protocol.md lists the names."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "TurnRecord":
        """The inverse of `to_json`.

        Raises:
            TfdistError: another format version, or an incomplete turn.
        """
        if data.get("format") != FORMAT:
            raise TfdistError(f"a turn of format {data.get('format')!r}: this tfdist reads format {FORMAT}")
        values = {key: value for key, value in data.items() if key != "format"}
        try:
            windows = {task: tuple(map(window_from_json, rows)) for task, rows in values["windows"].items()}
            hosts = tuple(HostUsage(**host) for host in values["hosts"])
            return cls(**{**values, "windows": windows, "hosts": hosts})
        except (TypeError, AttributeError, KeyError) as error:
            raise TfdistError(f"incomplete turn: {error}") from None


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
    incarnation: int = 0
    """The start of the arm's processes, counted from 1; 0: this run is the only turn of its processes."""
    group: int = 1
    """Arms whose turns were interleaved."""
    hosts_usage: tuple[HostUsage, ...] = ()
    """During the turn; empty: not measured."""
    evaluations: tuple[Evaluation, ...] = ()
    """In the order in which an evaluator made them."""
    observed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """As TurnRecord.observed."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Record":
        """The inverse of `to_json`.

        Raises:
            TfdistError: another format version, or an incomplete record.
        """
        if data.get("format") not in READABLE:
            raise TfdistError(f"a record of format {data.get('format')!r}: this tfdist reads formats 1 and {FORMAT}")
        values = {key: value for key, value in data.items() if key != "format"}
        try:
            values["ranks"] = tuple(rank_from_json(rank) for rank in values.get("ranks", ()))
            values["hosts_usage"] = tuple(HostUsage(**host) for host in values.get("hosts_usage", ()))
            values["evaluations"] = tuple(Evaluation(**each) for each in values.get("evaluations", ()))
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
    windows = {name: tuple(map(window_from_json, data[name])) for name in ("warmup", "windows")}
    storage = {device: Storage(**each) for device, each in data.get("storage", {}).items()}
    tuples = {name: tuple(data.get(name, ())) for name in ("affinity", "gpu_peak_bytes")}
    return RankRecord(**{**data, **windows, **tuples, "storage": storage})


def window_from_json(data: Mapping[str, Any]) -> Window:
    """The inverse of `dataclasses.asdict` on a Window.

    Raises:
        TypeError, KeyError: incomplete.
    """
    usage = data.get("usage")
    if usage is not None:
        usage = WindowUsage(**{**usage, "gpus": tuple(GpuReading(**gpu) for gpu in usage.get("gpus", ()))})
    return Window(**{**data, "usage": usage})
