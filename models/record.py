"""The raw measurements of one run: the windows of every rank, as versioned JSON. Statistics are computed later.

No TensorFlow and no pandas: tasks and the launcher both use this file.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypedDict, TypeVar

from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import finite
from tfdist.launch.str_enum import StrEnum
from tfdist.launch.typed_json import Between, Has, PositiveFloat, PositiveInt, Seconds, from_json, shown
from tfdist.models.spec import TrainingSpec
from tfdist.models.strategy_check import StrategyCheck

if TYPE_CHECKING:
    from typing_extensions import Self

Amount = Annotated[int, Between(0, 1 << 50)]
"""A number of things or bytes; sums of many have 64 bits."""
Share = Annotated[float, Between(0, 1)]
Loss = Annotated[float, Between(-1e39, 1e39)]
"""A loss within the range of float32."""
Difference = Annotated[float, Between(-1e12, 1e12)]
"""Difference of two readings, such as CPU seconds: a little below 0 if the clocks were corrected meanwhile."""

T = TypeVar("T")
FORMAT = 2


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

    index: Amount
    memory_bytes: Amount
    """Bytes in use by all processes."""
    utilization: Share
    """Share of the last sampling period in which a kernel ran, 0..1."""
    power_w: Difference
    energy_j: Difference | None
    """Energy of the window, by the GPU's counter; None: it has none."""
    sm_clock_mhz: Amount
    throttle: str
    """Why its clock is lowered; empty: it is not."""


@dataclass(frozen=True)
class WindowUsage:
    """What this process and its host used during a window."""

    cpu_s: Difference
    """CPU seconds of this process."""
    busy_s: Difference
    """CPU seconds of all processes of the host, this one included."""
    steal_s: Difference
    """CPU seconds that the hypervisor gave to other virtual machines."""
    resident_bytes: Amount
    """Memory of this process in RAM at the window's end."""
    gpus: tuple[GpuReading, ...] = ()
    """This task's GPUs at the window's end."""


@dataclass(frozen=True)
class Window:
    """Consecutive steps between two moments at which the device had finished all its work."""

    steps: Amount
    examples: Amount
    """Processed by the replicas of this rank; asynchronous: applied by all workers together."""
    elapsed_s: PositiveFloat
    """Seconds by time.perf_counter()."""
    loss: Loss | None
    """Mean over the global batch of its last step."""
    usage: WindowUsage | None = None
    epochs: Amount = 0
    """Epochs that ended in it."""
    between_s: Seconds = 0.0
    """Seconds between these epochs and the next step: validation, checkpoints, new iterators. No other figure of the
    window includes them."""
    between_cpu_s: Difference = 0.0
    """CPU seconds of this process meanwhile."""


@dataclass(frozen=True)
class RankRecord:
    """The measurements of one task, sent as its `record` event."""

    task: str
    """`worker-0`; in an asynchronous job `chief-0`, which measures all workers."""
    host: str
    replicas: PositiveInt
    warmup: tuple[Window, ...]
    windows: tuple[Window, ...]
    """The timed windows."""
    phases_s: Mapping[str, Difference]
    """Seconds of each start-up phase: `import`, `strategy`, `build` (until the first window), `trace` (the first step).

    `first_step_end`: from the start of the process to the end of the first step.
    """
    examples_applied: Amount
    """Examples of this rank in the whole run, warm-up included; asynchronous: of all workers, by a counter on ps."""
    updates_applied: Amount
    """The optimizer's iterations at the end."""
    resumed_at: Amount = 0
    """The step of the checkpoint that it continued from: its windows are those of later steps."""
    accuracy: Share | None = None
    """Accuracy on the held-out examples, 0..1; None: not evaluated."""
    peak_memory_bytes: Amount = 0
    gpu_peak_bytes: tuple[Amount, ...] = ()
    """The most memory that TensorFlow has allocated on each GPU of this task; empty for an asynchronous job."""
    cpu_s: Difference = 0.0
    affinity: tuple[int, ...] = ()
    scheduling: str = ""
    """Policy of the process: `normal`, `batch` (tfdist pinned it to one core), `other`; empty: unknown."""
    software: Mapping[str, str] = field(default_factory=dict)
    """`tensorflow`, `keras` (with its engine), `python`, `tfdist`, `numpy`.

    With GPUs also `cuda`, `cudnn`, `nccl`, `driver`, `tf32` (on or off), and `nvidia-ml-py`: its version, or why
    windows have no GPU readings.
    """
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that affect speed."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluator measured at one checkpoint."""

    step: Amount
    accuracy: Share
    """Accuracy on the held-out examples, 0..1."""


@dataclass(frozen=True)
class HostUsage:
    """What the processes of one host used from just before a turn to just after it."""

    seconds: PositiveFloat
    cores: PositiveInt
    cpu_s: Mapping[str, Difference]
    """CPU seconds of the arm's tasks on this host, servers included, by task."""
    busy_s: Difference
    """CPU seconds of all processes."""
    steal_s: Difference
    """CPU seconds that the hypervisor gave to other virtual machines."""

    @property
    def others(self) -> float:
        """The share of all cores, 0..1, that processes of others used."""
        return max(0.0, self.busy_s - sum(self.cpu_s.values())) / (self.seconds * self.cores)

    @property
    def steal(self) -> float:
        """The stolen share of all cores, 0..1."""
        return self.steal_s / (self.seconds * self.cores)


class HeldOut(TypedDict):
    """What a model achieves on the held-out examples."""

    examples: PositiveFloat
    """Trained so far by all workers together."""
    loss: Loss | None
    """Mean cross-entropy."""
    accuracy: Share
    """The share, 0..1, that it classifies correctly."""


@dataclass(frozen=True)
class _StepTimes:
    start: Difference
    ready: tuple[tuple[Difference, ...], ...]
    done: tuple[Difference, ...]
    gradient_bytes: Amount = 0


class CollectiveCase(TypedDict):
    """What a task of `tfdist collectives` reports about one size in one turn."""

    bytes: Amount
    tensors: PositiveInt
    pack_bytes: Amount
    iterations: PositiveInt
    seconds: PositiveFloat
    """Seconds of all iterations on this task."""
    wrong: Amount
    """Elements with a wrong value in the last results, of the ranks of this task."""


class _Known(TypedDict, total=False):
    """What tfdist reads of TurnRecord.observed."""

    collectives: tuple[CollectiveCase, ...]
    held_out: HeldOut
    step_times: _StepTimes
    updates: tuple[tuple[Amount, ...], ...]


Observed = Annotated[Mapping[str, Any], Has(_Known)]


@dataclass(frozen=True)
class _Versioned:
    """What is a line of a file, with the version of its format."""

    NAME: ClassVar[str]
    """What messages call it."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with the format's version."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Self":
        """The inverse of `to_json`.

        Raises:
            TfdistError: another format version, or an incomplete line.
        """
        if data.get("format") != FORMAT:
            raise TfdistError(f"a {cls.NAME} of format {shown(data.get('format'))}: this tfdist reads format {FORMAT}")
        try:
            return from_json(data, cls)
        except ValueError as error:
            raise TfdistError(f"incomplete {cls.NAME}: {error}") from None


@dataclass(frozen=True)
class TurnRecord(_Versioned):
    """One turn of one arm: its timed windows by task. A line of turns.jsonl."""

    NAME = "turn"

    arm: str
    round: Amount
    """Counted from 1, over all incarnations."""
    incarnation: Amount
    """The start of the arm's processes, counted from 1."""
    group: Amount
    """Arms whose turns were interleaved; counted from 1."""
    order: Amount
    """Position among all turns of the bench."""
    started: str
    """UTC, ISO 8601."""
    windows: Mapping[str, tuple[Window, ...]]
    hosts: tuple[HostUsage, ...] = ()
    repeated: bool = False
    """It replaces a disturbed turn of the same round, or is that of the baseline beside it."""
    observed: Mapping[str, Observed] = field(default_factory=dict)
    """What each task reported about the turn besides windows, by name: JSON. docs/protocol.md lists the names."""


@dataclass(frozen=True)
class TaskUsage:
    """Resource usage of one finished process, from getrusage."""

    peak_memory_bytes: Amount
    cpu_s: Difference


@dataclass(frozen=True)
class _Spec(TrainingSpec):
    """What Record.spec may hold; of a refused arm it has only what the suite says."""

    global_batch_size: PositiveInt = 1
    command: str | tuple[str, ...] = ""
    """Command as a shell reads it; of a refused arm the list of the suite."""


@dataclass(frozen=True)
class _Link:
    bytes_per_s: PositiveFloat | None = None
    rtt_s: PositiveFloat | None = None

    def __post_init__(self) -> None:
        if (self.bytes_per_s is None) != (self.rtt_s is None):
            raise ValueError("only one of bytes_per_s and rtt_s")


MeasuredLink = Annotated[Mapping[str, PositiveFloat], Has(_Link)]
"""The slowest link between neighbouring hosts: `bytes_per_s` of one TCP stream, `rtt_s`; empty: not measured."""


class _Hardware(TypedDict, total=False):
    """What reports read of Record.hardware."""

    host: str
    cpu: str
    cores: tuple[Amount, ...]
    memory_bytes: Amount
    gpus: tuple[Any, ...]
    packages: Mapping[str, str]


@dataclass(frozen=True)
class Record(_Versioned):
    """One run of one arm, successful or not."""

    NAME = "record"

    arm: str
    round: Amount
    spec: Annotated[Mapping[str, Any], Has(_Spec)]
    """TrainingSpec.to_json()."""
    status: RecordStatus
    reason: str
    """One sentence; empty for `ok`."""
    exit_code: int
    ranks: tuple[RankRecord, ...] = ()
    usage: Mapping[str, TaskUsage] = field(default_factory=dict)
    """Usage by task name; parameter servers and user programs included."""
    hardware: Annotated[Mapping[str, Any], Has(_Hardware)] = field(default_factory=dict)
    """CPU model, cores, memory, GPUs and OS of the first host."""
    command: str = ""
    started: str = ""
    """UTC, ISO 8601."""
    wall_s: Difference = 0.0
    """Seconds from the start of the first process to the end of the last one."""
    run_dir: str = ""
    """The run's folder with its logs, relative to the folder of the bench."""
    git_commit: str = ""
    hosts: PositiveInt = 1
    """Number of hosts of the job."""
    link: MeasuredLink = field(default_factory=dict)
    """Measured before."""
    order: Amount = 0
    """Position among all runs of the bench."""
    incarnation: Amount = 0
    """The start of the arm's processes, counted from 1; 0: this run is the only turn of its processes."""
    group: Amount = 1
    """Arms whose turns were interleaved."""
    hosts_usage: tuple[HostUsage, ...] = ()
    """Usage of the turn, by host; empty: not measured."""
    evaluations: tuple[Evaluation, ...] = ()
    """Evaluations in the order in which an evaluator made them."""
    observed: Mapping[str, Observed] = field(default_factory=dict)
    """`TurnRecord.observed`."""
    strategy_check: StrategyCheck | None = None
    """Whether the user's own program trained under the strategy in `spec`; None: the built-in training does."""
    strategy_note: str = ""
    """A sentence with the fix, if it is refuted or unknown."""


def from_event(values: Any, kind: type[T]) -> T:
    """Part of an event of a task as `from_json` reads it; NaN (the loss of a training that diverged) is null there."""
    return from_json(finite(values), kind)
