"""The table of strategies: the tasks, devices and options of each, and what does not work with it. No TensorFlow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from tfdist.launch.errors import TfdistError
from tfdist.launch.str_enum import StrEnum
from tfdist.strategies.options import Api, GradientDtype, Keras, StrategyName


@dataclass(frozen=True)
class Refusal:
    """Why a combination does not work, and what to use instead."""

    reason: str
    instead: str


def refuse(refusal: Refusal | None, options: str) -> None:
    """Raise a TfdistError for these command-line options unless the combination works."""
    if refusal is not None:
        raise TfdistError(f"{options}: {refusal.reason}; {refusal.instead}")


KERAS_RUNS = "TensorFlow 2.21 and 2.22, tf_keras 2.21, Keras 3.12 and 3.15"
"""What every combination of `keras_refusal` was run with (tests/integration/test_keras_cells.py)."""


def keras_refusal(strategy: StrategyName, keras: Keras, api: Api) -> Refusal | None:
    """Why this Keras does not train under `strategy` through `api`; None if it does. Source: `KERAS_RUNS`."""
    row = CATALOG[strategy]
    problems = {**(row.keras3_problems if keras is Keras.THREE else {}), **row.api_problems}
    if api not in problems:
        return None
    other_keras = () if api in row.api_problems else ("--keras 2 (the default)",)
    works = (*other_keras, *(f"--api {other}" for other in Api if other not in problems))
    return Refusal(problems[api], f"use {' or '.join(works) or '--keras 2 --api loop'}")


def gradient_dtype_refusal(dtype: GradientDtype, nccl: bool) -> Refusal | None:
    """Why gradients are not exchanged in this type, over NCCL or not; None if they are.

    Source: the types of the NcclAllReduce operation of TensorFlow 2.21 and 2.22, and of kValidDataTypes in the
    nccl_manager.cc of 2.21, which treats others as float32. Not run on hardware.
    """
    if not nccl or dtype is not GradientDtype.BFLOAT16:
        return None
    return Refusal(
        "TensorFlow's all-reduce over NCCL has no bfloat16",
        "use --gradient-dtype float16, or --communication ring, or --cross-device reduction-to-one",
    )


class Exchange(StrEnum):
    """How the replicas of a job exchange gradients, which decides how its throughput is computed."""

    SYNC = "sync"
    ASYNC = "async"
    NONE = "no exchange"


@dataclass(frozen=True)
class Role:
    """The tasks of one role in the job of a strategy."""

    name: str
    count: Literal["one", "workers", "ps"]
    """One task, or as many as --workers or --ps."""
    computes: bool = True
    """Its tasks have devices."""
    serves: bool = False
    """Its tasks run a TensorFlow server for the leading ones, and no program unless they are clients. The job ends
    without them, but they must not end before it."""
    client: bool = False
    """It serves the leading tasks by training: its tasks run the program too, with a graph of their own."""
    restarts: tuple[str, ...] | None = ()
    """The roles whose tasks are all restarted when one of this role fails; empty: that task alone; None: no restart."""

    @property
    def leads(self) -> bool:
        """The job ends when all tasks of its leading roles have exited with code 0."""
        return not self.serves


@dataclass(frozen=True)
class Strategy:
    """One row of the table."""

    name: StrategyName
    tf_name: str
    summary: str
    needs: str = "one device"
    module: str = ""
    """The file of this folder that builds it; empty: its tasks build graphs (models/graph)."""
    class_name: str = ""
    """The beginning of the name of TensorFlow's class; empty: a program trains on one device whatever it builds, or
    uses no class."""
    roles: tuple[Role, ...] = (Role("worker", "one"),)
    exchange: Exchange = Exchange.SYNC
    has_cluster: bool = False
    """Its tasks talk to each other: they have ports and a TF_CONFIG."""
    options: tuple[str, ...] = ()
    """The fields of StrategyChoice and TrainingSpec that change it."""
    replicas_known: bool = True
    """The launcher knows the number of replicas; False: only a running task does."""
    pins_cores: bool = True
    """Whether a CPU device is pinned to a core by default."""
    many_cpu_devices: bool = True
    """A process without GPUs runs a replica on each of its virtual CPU devices."""
    scales_loss: bool = True
    """tf_keras scales the loss under it, which float16 needs."""
    keras3_problems: Mapping[Api, str] = field(default_factory=dict)
    """Why Keras 3 does not train under it, for each API that fails."""
    api_problems: Mapping[Api, str] = field(default_factory=dict)
    """Why no Keras trains under it through these APIs."""
    least_ps: int = 1
    """Smallest number of parameter servers that --ps accepts, which is also the default."""
    trains_built_in: bool = True
    """The built-in training runs under it."""
    device_files: tuple[str, ...] = ()
    """Files below /dev, one of which this machine needs."""
    xla_refusals: Mapping[Api, Refusal] = field(default_factory=dict)
    """Why XLA does not compile its steps, for each API with which it does not."""
    clock_problem: str = ""
    """Why its steps cannot read the clock, as step times need; empty: they can."""
    check_size: Mapping[str, int] | None = None
    """The options of the job in which `tfdist check` runs a program, the smallest that exchanges gradients; None: it
    runs none."""
    start_s: float = 5
    """Seconds until the first step is over, without those that each process adds: its share of the wall time in which
    all arms of suite cpu start on two cores."""

    @property
    def graph(self) -> bool:
        """Its tasks build graphs and run them in sessions (tf.compat.v1), without tf.distribute."""
        return not self.module

    @property
    def many_processes(self) -> bool:
        """The number of processes depends on --workers."""
        return any(role.count == "workers" for role in self.roles)

    @property
    def one_process(self) -> bool:
        """Its replicas are the devices of one process."""
        return "devices" in self.options and not self.many_processes

    @property
    def all_reduce(self) -> Literal["communication", "cross_device"] | None:
        """The option that chooses how its replicas all-reduce gradients: `communication` between processes,
        `cross_device` between the devices of one process; None: they do not."""
        if "communication" in self.options:
            return "communication"
        return "cross_device" if "cross_device" in self.options else None

    @property
    def leader(self) -> str | None:
        """The role whose task the others serve; None: no task serves."""
        serving = any(role.serves for role in self.roles)
        return next(role.name for role in self.roles if role.leads) if serving else None


_ALL = ("chief", "worker", "ps")
_CHIEF = Role("chief", "one", computes=False, restarts=_ALL)
_PS = Role("ps", "ps", computes=False, serves=True, restarts=_ALL)
# Strategies with parameter servers.
_SERVERS: Mapping[str, Any] = {
    "needs": "a free port for the chief, each worker and each ps",
    "has_cluster": True,
    "many_cpu_devices": False,
}
# Strategies that build graphs: no file of this folder builds them.
_GRAPH: Mapping[str, Any] = {
    **_SERVERS,
    "keras3_problems": {Api.LOOP: "Keras 3 exposes no updates of BatchNorm in the graphs of tf.compat.v1"},
    "api_problems": {Api.FIT: "Model.fit does not run the sessions of tf.compat.v1 in a cluster"},
}

_NO_XLA = Refusal("XLA compiles no step whose variables are elsewhere", "omit --xla")
_NO_XLA_IN_FIT = Refusal("fit compiles the exchange of gradients, too, which XLA cannot", "use --api loop")

_ROWS = (
    Strategy(
        StrategyName.NO_STRATEGY,
        module="no_strategy",
        tf_name="none",
        summary="plain TensorFlow on one device: what a strategy costs before it distributes anything",
        start_s=2,
    ),
    Strategy(
        StrategyName.ONE_DEVICE,
        module="one_device",
        tf_name="OneDeviceStrategy",
        summary="one device: the baseline of every comparison",
        check_size={},
        start_s=2,
    ),
    Strategy(
        StrategyName.MIRRORED,
        module="mirrored",
        tf_name="MirroredStrategy",
        class_name="MirroredStrategy",
        summary="one process, a replica on each device, gradients all-reduced between the devices",
        needs="one host",
        options=("devices", "cross_device", "packs", "bytes_per_pack", "gradient_dtype"),
        xla_refusals={Api.FIT: _NO_XLA_IN_FIT},
        check_size={"devices": 2},
        start_s=4,
    ),
    Strategy(
        StrategyName.MULTI_WORKER,
        module="multi_worker",
        tf_name="MultiWorkerMirroredStrategy",
        class_name="CollectiveAllReduce",
        summary="one process per worker, gradients all-reduced over the network",
        needs="a free port for each worker",
        roles=(Role("worker", "workers", restarts=("worker",)),),
        has_cluster=True,
        options=("workers", "devices", "communication", "bytes_per_pack", "gradient_dtype", "timeout_collective_s"),
        many_cpu_devices=False,
        keras3_problems={Api.FIT: "Keras 3's fit cannot convert MultiWorkerMirroredStrategy's PerReplica values"},
        xla_refusals={Api.FIT: _NO_XLA_IN_FIT},
        check_size={"workers": 2},
        start_s=7,
    ),
    Strategy(
        StrategyName.CENTRAL_STORAGE,
        module="central_storage",
        tf_name="experimental.CentralStorageStrategy",
        class_name="CentralStorage",
        summary="one process, one copy of the variables (on the CPU), a replica on each device",
        needs="one host",
        options=("devices",),
        scales_loss=False,
        keras3_problems=dict.fromkeys(
            Api, "Keras 3's BatchNorm names no aggregation for its variables, which central-storage requires"
        ),
        xla_refusals=dict.fromkeys(Api, _NO_XLA),
        check_size={"devices": 2},
        start_s=3,
    ),
    Strategy(
        StrategyName.PARAMETER_SERVER,
        module="parameter_server",
        tf_name="experimental.ParameterServerStrategy",
        class_name="ParameterServer",
        summary="asynchronous: each worker applies its gradients to variables on parameter servers when they are ready",
        roles=(
            Role("chief", "one", computes=False),
            Role("worker", "workers", serves=True),
            Role("ps", "ps", computes=False, serves=True, restarts=("chief", "ps")),
        ),
        exchange=Exchange.ASYNC,
        options=("workers", "ps", "devices", "variable_partitioner", "placement"),
        scales_loss=False,
        keras3_problems={
            Api.FIT: "Keras 3's fit does not run under ParameterServerStrategy",
            Api.LOOP: "Keras 3's optimizer loses counter updates (iterations is not atomic) under "
            "ParameterServerStrategy",
        },
        xla_refusals=dict.fromkeys(Api, _NO_XLA),
        check_size={"workers": 2, "ps": 1},
        **_SERVERS,
    ),
    Strategy(
        StrategyName.BETWEEN_GRAPH,
        tf_name="tf.compat.v1: sessions, SyncReplicasOptimizer",
        summary="the classic: each worker builds its own graph, with variables on parameter servers; asynchronous, or "
        "synchronous with --sync, which may leave out the slowest with --set backup_workers",
        roles=(_CHIEF, Role("worker", "workers", serves=True, client=True), _PS),
        exchange=Exchange.ASYNC,
        options=("workers", "ps", "sync", "backup_workers", "variable_partitioner", "placement"),
        **_GRAPH,
    ),
    Strategy(
        StrategyName.IN_GRAPH,
        tf_name="tf.compat.v1: one session, a tower for each worker",
        summary="the classic: the chief builds one graph with a tower on each worker, which only serves; the variables "
        "are on parameter servers, or without them on the first worker",
        roles=(_CHIEF, Role("worker", "workers", serves=True, restarts=_ALL), _PS),
        options=("workers", "ps", "variable_partitioner", "placement"),
        least_ps=0,
        **_GRAPH,
    ),
    Strategy(
        StrategyName.TPU,
        module="tpu",
        tf_name="TPUStrategy",
        class_name="TPU",
        summary="one process, a replica on each TPU core",
        needs="a TPU (not run on hardware)",
        replicas_known=False,
        pins_cores=False,
        scales_loss=False,
        device_files=("accel0", "vfio/0"),  # by generation of the TPU VM
        clock_problem="TensorFlow cannot read the clock in a TPU's step",
        check_size={},
    ),
    Strategy(
        StrategyName.INDEPENDENT,
        module="one_device",
        tf_name="OneDeviceStrategy in each process",
        summary="N one-device trainings side by side without gradient exchange: the upper bound for the others",
        needs="one device for each worker",
        roles=(Role("worker", "workers", restarts=None),),
        exchange=Exchange.NONE,
        options=("workers",),
        start_s=2,
    ),
    Strategy(
        StrategyName.EXTERNAL,
        module="no_strategy",
        tf_name="none",
        summary="your own program distributes its training without tf.distribute, as those of another framework do: "
        "a process per worker with TF_CONFIG",
        needs="a program of your own, and a free port for each worker",
        roles=(Role("worker", "workers", restarts=("worker",)),),
        has_cluster=True,
        options=("workers", "devices"),
        trains_built_in=False,
    ),
)

CATALOG: Mapping[StrategyName, Strategy] = MappingProxyType({row.name: row for row in _ROWS})


def exchange_of(strategy: StrategyName, sync: bool) -> Exchange:
    """How the replicas of a job exchange gradients. `sync`: see StrategyChoice."""
    return Exchange.SYNC if sync else CATALOG[strategy].exchange


def use_a_cluster() -> str:
    """How to fix a strategy without a cluster, as the end of a sentence."""
    return f"use one of {', '.join(name for name, row in CATALOG.items() if row.has_cluster)}"
