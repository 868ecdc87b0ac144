"""The closed choices of the command line, each listed once, and how its options are written. No TensorFlow."""

from collections.abc import Iterable
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.str_enum import StrEnum
from tfdist.launch.text import did_you_mean

KINDS = ("fixed", "min-size", "max-size")


def parse_partitioner(text: str) -> tuple[str, int] | None:
    """Kind and size of the partitioner that `text` names; None for `none`.

    It splits each variable into `size` shards (fixed), or into shards of at least or at most `size` bytes.

    Raises:
        TfdistError: `text` has another form.
    """
    if text == "none":
        return None
    kind, _, size = text.partition(":")
    if kind not in KINDS or not (size.isascii() and size.isdecimal() and int(size) > 0):
        raise TfdistError(f"--set variable_partitioner={text}: use none, fixed:N, min-size:BYTES or max-size:BYTES")
    return kind, int(size)


class StrategyName(StrEnum):
    """A distribution strategy; `auto` is resolved before any task starts."""

    AUTO = "auto"
    NO_STRATEGY = "no-strategy"
    ONE_DEVICE = "one-device"
    MIRRORED = "mirrored"
    MULTI_WORKER = "multiworker"
    CENTRAL_STORAGE = "central-storage"
    PARAMETER_SERVER = "parameter-server"
    BETWEEN_GRAPH = "between-graph"
    IN_GRAPH = "in-graph"
    TPU = "tpu"
    INDEPENDENT = "independent"
    EXTERNAL = "external"


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


class GpuThreads(StrEnum):
    """TF_GPU_THREAD_MODE: the threads that start a GPU's kernels, shared with all other work or a few for each GPU."""

    GLOBAL = "global"
    PRIVATE = "gpu_private"


class GradientDtype(StrEnum):
    """The type in which replicas exchange gradients; they are computed and applied in float32."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is GradientDtype.FLOAT32 else 2


class Placement(StrEnum):
    """Which parameter server holds a new variable: the next one in turn, or the one with the fewest bytes."""

    ROUND_ROBIN = "round-robin"
    GREEDY = "greedy"


class Keras(StrEnum):
    """2 is tf_keras, 3 the keras that TensorFlow installs."""

    TWO = "2"
    THREE = "3"

    @property
    def environment(self) -> dict[str, str]:
        """The variable that makes `tf.keras` this Keras. TensorFlow reads it on import."""
        return {LEGACY_KERAS: "1" if self is Keras.TWO else "0"}


LEGACY_KERAS = "TF_USE_LEGACY_KERAS"


class Api(StrEnum):
    """What runs the steps: the timed loop of tfdist, or Model.fit."""

    LOOP = "loop"
    FIT = "fit"


class Precision(StrEnum):
    """Keras' global dtype policy."""

    FLOAT32 = "float32"
    MIXED_BFLOAT16 = "mixed_bfloat16"
    MIXED_FLOAT16 = "mixed_float16"


_GONE = {
    ("api", "estimator"): "TensorFlow has no tf.estimator since 2.16; use loop or fit, or --strategy between-graph",
}
"""What replaces a choice of earlier TensorFlow versions, by option and value."""


def fix_of_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """How to fix a value that is none of the choices of an option: what replaces it, or which one is meant."""
    return _GONE.get((name, value.casefold())) or did_you_mean(value, choices)


SETTINGS = frozenset([
    "packs", "timeout_collective", "gpu_threads", "variable_partitioner", "placement", "backup_workers",
    "logical_gpus", "memory_growth", "memory_limit", "soft_placement", "log_device_placement", "intra_op_threads",
    "alpha", "classes", "bn_momentum", "ema", "shuffle", "data_dir", "warmup_steps", "steps_per_window", "seed",
    "learning_rate", "optimizer", "evaluate", "evaluator", "cores_per_device", "keep", "restart_on", "stop_on_nan",
    "log_limit", "copy_limit", "meta_optimizer", "step_times", "count_updates",
])  # fmt: skip
"""Options that few need: they are given as `--set packs=2`."""


def option_name(name: str) -> str:
    """The option of a parameter or field, without its unit: `--ps`, `--set timeout_collective`."""
    name = name.removesuffix("_s").removesuffix("_mb")
    return f"--set {name}" if name in SETTINGS else "--" + name.replace("_", "-")


def option_words(name: str, value: Any) -> list[str]:
    """The words that give a parameter or field this value: `--ps 2`, `--set packs=2`, `--no-sync`, `-x A=1 -x B=2`."""
    if isinstance(value, list | tuple):
        return [word for one in value for word in option_words(name, one)]
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    if option_name(name).startswith("--set "):
        unit = "M" if name.endswith("_mb") else ""
        key = option_name(name).removeprefix("--set ")
        value = text.lower() if isinstance(value, bool) else text
        return ["--set", f"{key}={value}{unit}"]
    if isinstance(value, bool):
        return [option_name(name if value else f"no_{name}")]
    return [option_name(name), text]


def option_text(name: str, value: Any) -> str:
    """A parameter or field with its value, in a message: `--ps 2`, `--set packs=2`, `--no-sync`."""
    return " ".join(option_words(name, value))


def variable_of(name: str) -> str:
    """The environment variable of an option: TFDIST_BATCH_SIZE for `batch_size` or `--batch-size`."""
    return "TFDIST_" + name.lstrip("-").replace("-", "_").upper()
