"""Which strategies exist, what each needs, how its job ends, and which Keras it works with. No TensorFlow in here."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tfdist.launch.job import RoleShape
from tfdist.launch.str_enum import StrEnum


class StrategyName(StrEnum):
    """The names that the command line takes."""

    AUTO = "auto"
    ONE_DEVICE = "one-device"
    MIRRORED = "mirrored"
    MULTI_WORKER = "multiworker"
    CENTRAL_STORAGE = "central-storage"
    PARAMETER_SERVER = "parameter-server"
    TPU = "tpu"
    INDEPENDENT = "independent"


class Communication(StrEnum):
    """`tf.distribute.experimental.CommunicationImplementation`: the all-reduce between workers."""

    AUTO = "auto"
    RING = "ring"
    NCCL = "nccl"


class CrossDevice(StrEnum):
    """`tf.distribute.CrossDeviceOps`: the all-reduce between the devices of one process. auto: TensorFlow's default."""

    AUTO = "auto"
    NCCL = "nccl"
    HIERARCHICAL_COPY = "hierarchical-copy"
    REDUCTION_TO_ONE = "reduction-to-one"


class Placement(StrEnum):
    """How variables are spread over servers: as TensorFlow does, by count, or to the one that holds fewest bytes."""

    ROUND_ROBIN = "round-robin"
    GREEDY = "greedy"


class Keras(StrEnum):
    """2 is tf_keras, 3 the keras that TensorFlow 2.21 brings."""

    TWO = "2"
    THREE = "3"


class Api(StrEnum):
    """Who runs the steps: our timed loop, or Model.fit."""

    LOOP = "loop"
    FIT = "fit"


class Precision(StrEnum):
    """Keras' global dtype policy."""

    FLOAT32 = "float32"
    MIXED_BFLOAT16 = "mixed_bfloat16"
    MIXED_FLOAT16 = "mixed_float16"


class Exchange(StrEnum):
    """How the replicas of a job depend on each other, which decides what its wall time is."""

    SYNC = "sync"
    ASYNC = "async"
    NONE = "no exchange"


class Ends(StrEnum):
    """When a job is over."""

    ALL_EXIT = "all tasks exit 0"
    LEADER_EXITS = "the chief exits; workers and ps are then stopped"


@dataclass(frozen=True)
class Strategy:
    """One row of the table."""

    name: StrategyName
    tf_name: str
    summary: str
    exchange: Exchange
    many_processes: bool
    has_cluster: bool
    ends: Ends
    options: tuple[str, ...]
    needs: str

    @property
    def synchronous(self) -> bool:
        """Tasks step by themselves in a loop of their own; False: a chief schedules the steps of workers."""
        return self.exchange is not Exchange.ASYNC

    def roles(self, workers: int, ps: int) -> Mapping[str, RoleShape]:
        """The tasks of each role."""
        if self.name is StrategyName.PARAMETER_SERVER:
            return {
                "chief": RoleShape(1, computes=False),
                "worker": RoleShape(workers),
                "ps": RoleShape(ps, computes=False),
            }
        return {"worker": RoleShape(workers if self.many_processes else 1)}


def _one_process(name: StrategyName, tf_name: str, summary: str, options: tuple[str, ...], needs: str) -> Strategy:
    return Strategy(
        name,
        tf_name,
        summary,
        Exchange.SYNC,
        False,
        False,
        Ends.ALL_EXIT,
        options,
        needs,
    )


_ROWS = (
    _one_process(
        StrategyName.ONE_DEVICE, "OneDeviceStrategy", "one device: the baseline of every comparison", (), "one device"
    ),
    _one_process(
        StrategyName.MIRRORED,
        "MirroredStrategy",
        "one process, a replica on each device, gradients all-reduced between the devices",
        ("--devices", "--cross-device", "--packs"),
        "one host",
    ),
    Strategy(
        StrategyName.MULTI_WORKER,
        "MultiWorkerMirroredStrategy",
        "one process a worker, gradients all-reduced over the network",
        Exchange.SYNC,
        True,
        True,
        Ends.ALL_EXIT,
        ("--workers", "--devices", "--communication", "--bytes-per-pack", "--timeout-collective"),
        "a free port for each worker",
    ),
    _one_process(
        StrategyName.CENTRAL_STORAGE,
        "experimental.CentralStorageStrategy",
        "one process, one copy of the variables (on the CPU), a replica on each device",
        ("--devices",),
        "one host",
    ),
    Strategy(
        StrategyName.PARAMETER_SERVER,
        "experimental.ParameterServerStrategy",
        "asynchronous: workers compute gradients and apply them to variables on parameter servers as they come",
        Exchange.ASYNC,
        True,
        True,
        Ends.LEADER_EXITS,
        ("--workers", "--ps", "--devices", "--variable-partitioner", "--placement"),
        "a free port for the chief, each worker and each ps",
    ),
    _one_process(
        StrategyName.TPU, "TPUStrategy", "one process, a replica on each TPU core", (), "a TPU (not run on hardware)"
    ),
    Strategy(
        StrategyName.INDEPENDENT,
        "none: OneDeviceStrategy in each process",
        "N one-device trainings side by side without any exchange: the ceiling that the others are held against",
        Exchange.NONE,
        True,
        False,
        Ends.ALL_EXIT,
        ("--workers",),
        "one device for each worker",
    ),
)

CATALOG: Mapping[StrategyName, Strategy] = MappingProxyType({row.name: row for row in _ROWS})


TPU_DEVICES = ("accel0", "vfio/0")
"""What a TPU VM has below /dev, by generation: one of these."""


@dataclass(frozen=True)
class Refusal:
    """Why a combination does not work with TensorFlow 2.21, and what to use instead."""

    reason: str
    instead: str


_TWO = "use --keras 2 (the default)"
_NO_FIT = "use --api loop, or --keras 2"


def keras_refusal(strategy: StrategyName, cross_device: CrossDevice, keras: Keras, api: Api) -> Refusal | None:
    """Whether Keras `keras` trains under `strategy` through `api`: None if it does.

    Source: every cell was run with tensorflow 2.21.0, keras 3.15.1 and tf_keras 2.21.0; tests/integration runs those
    that are said to work.
    """
    if keras is Keras.TWO:
        return None
    if strategy is StrategyName.MULTI_WORKER and api is Api.FIT:
        return Refusal("Keras 3's fit cannot convert MultiWorkerMirroredStrategy's PerReplica values", _NO_FIT)
    if strategy is StrategyName.CENTRAL_STORAGE:
        return Refusal(
            "Keras 3's BatchNorm names no aggregation for its variables, which central-storage requires", _TWO
        )
    if strategy is StrategyName.PARAMETER_SERVER:
        what = "fit does not run" if api is Api.FIT else "optimizer loses counter updates (iterations is not atomic)"
        return Refusal(f"Keras 3's {what} under ParameterServerStrategy", _TWO)
    return None


_SCALES_NO_LOSS = (StrategyName.CENTRAL_STORAGE, StrategyName.PARAMETER_SERVER, StrategyName.TPU)


def precision_refusal(strategy: StrategyName, keras: Keras, precision: Precision, replicas: int) -> Refusal | None:
    """Whether Keras `keras` trains so many replicas safely in this precision: None if it does.

    Source: tf_keras' `strategy_supports_loss_scaling` names the strategies that it takes; with Keras 3, 12 of 120
    trainings of several replicas ended in NaN, none with tf_keras.
    """
    if keras is Keras.TWO and precision is Precision.MIXED_FLOAT16 and strategy in _SCALES_NO_LOSS:
        return Refusal(f"tf_keras scales no loss for float16 under {strategy}", "use --precision mixed_bfloat16")
    if keras is Keras.THREE and precision is Precision.MIXED_FLOAT16 and replicas > 1:
        what = "Keras 3 looks for overflows of float16 on the first replica only: trainings of several can end in NaN"
        return Refusal(what, "use --precision mixed_bfloat16, or --keras 2")
    return None


def devices_refusal(strategy: StrategyName, devices: int, gpus: bool) -> Refusal | None:
    """Whether a process of `strategy` makes a replica on each of its devices: None if it does.

    Source: MultiWorkerMirroredStrategy takes `CPU:0` where there is no GPU, ParameterServerStrategy counts GPUs.
    """
    if devices > 1 and not gpus and strategy in (StrategyName.MULTI_WORKER, StrategyName.PARAMETER_SERVER):
        what = f"without GPUs {CATALOG[strategy].tf_name} uses one device of each worker, not {devices}"
        return Refusal(what, f"use --workers {devices} in place of --devices {devices}")
    return None
