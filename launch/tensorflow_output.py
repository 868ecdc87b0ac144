"""TensorFlow's output: lines that it logs in every process, and known incompatibilities.

Each pattern was seen in a run with TensorFlow 2.21 or 2.22.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Incompatibility(NamedTuple):
    """A combination that does not work."""

    pattern: str
    """Regular expression for what the failing program writes."""
    what: str
    fix: str
    shows_in: Callable[[Mapping[str, str]], bool] = lambda packages: False
    """Whether the versions of a host's packages show it before anything has started."""

    @property
    def sentence(self) -> str:
        """`what: fix`."""
        return f"{self.what}: {self.fix}"


def _only_keras_3(packages: Mapping[str, str]) -> bool:
    major = packages.get("keras", "").partition(".")[0]
    return major.isdecimal() and int(major) >= 3 and "tf_keras" not in packages


_USE_TF_CONFIG = "use tfdist.strategies.current(), or TFConfigClusterResolver: every task has a TF_CONFIG"
KERAS_3 = "use tf.keras (tf_keras under tfdist) instead of 'import keras'"

INCOMPATIBILITIES = (
    Incompatibility(
        r"Attempt to convert a value \(PerReplica",
        "Keras 3's fit cannot convert PerReplica values, as MultiWorkerMirroredStrategy makes them",
        f"{KERAS_3}, or a custom training loop",
        _only_keras_3,
    ),
    Incompatibility(
        r"You must specify an aggregation method to update a ",
        "Keras 3's layers with state (BatchNorm, Dropout) name no aggregation for their variables, which "
        "CentralStorageStrategy and ParameterServerStrategy need",
        KERAS_3,
    ),
    Incompatibility(
        r"you need to pass this dataset to ClusterCoordinator\.create_per_worker_dataset",
        "the chief iterates over a distributed data set, which the workers of ParameterServerStrategy make",
        "call ClusterCoordinator.create_per_worker_dataset, as examples/custom_loop.py does; Keras 3's fit cannot",
    ),
    Incompatibility(
        r"No OpKernel was registered to support Op 'Nccl\w+'",
        "NCCL needs GPUs",
        "choose HierarchicalCopyAllReduce or ReductionToOneDevice as cross_device_ops, or omit it",
    ),
    Incompatibility(
        r"Could not start gRPC server",
        "another process listens on the task's port",
        "choose free ports with --port, or omit it; create the strategy once per process",
    ),
    Incompatibility(
        r"Shape mismatch in the collective instance",
        "the tasks, or two strategies in one process, exchange tensors of different shapes under the same number",
        "create one strategy per process, and the same model in every task",
    ),
    Incompatibility(
        r"No module named 'tensorboard'|TensorBoard is not installed",
        "tf.summary and the TensorBoard callback need the package tensorboard, which TensorFlow does not install",
        "install it on every host: pip install tensorboard",
    ),
    Incompatibility(
        r"MergeV2Checkpoints failed|BlockingIOError: .*(?:unable to lock file|checkpoint|\.keras|\.h5)",
        "another process writes the same checkpoint: all arms of a bench, and all workers of a job, run in one folder",
        "save in the folder that TFDIST_ARM_DIR names, another one for each arm and start; workers but the first "
        "need subfolders there",
    ),
    Incompatibility(
        r"KeyError: 'SLURM_\w+'|SLURM_\w+ not found in environment",
        "the program asks Slurm for its cluster (SlurmClusterResolver), but is no task of srun",
        f"{_USE_TF_CONFIG}; of tasks that srun starts, run each with 'tfdist launch --inherit slurm'",
    ),
    Incompatibility(
        r"googleapiclient must be installed before using the|Kubernetes Python client must be installed before using",
        "the program asks Google Cloud or Kubernetes for its cluster",
        _USE_TF_CONFIG,
    ),
    Incompatibility(
        r"KeyError: '(?:RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|OMPI_COMM_WORLD_\w+|PMI_\w+)'",
        "the program expects the variables of torchrun or mpirun",
        f"{_USE_TF_CONFIG}, with the index of the task and the addresses of all workers",
    ),
    Incompatibility(
        r"No module named 'horovod'",
        "Horovod is not installed, and is not needed: tfdist trains with tf.distribute",
        "docs/migrate.md says what takes the place of each call",
    ),
)


def hints(text: str, keras3: bool = False) -> tuple[str, ...]:
    """What is wrong and what to do, for each known incompatibility that a task's output shows.

    With `keras3`, tf.keras is Keras 3 in the task, so 'import keras' is not the cause.
    """
    fix = "choose Keras 2 with --keras 2, and use tf.keras" if keras3 else KERAS_3
    return tuple(each.sentence.replace(KERAS_3, fix) for each in INCOMPATIBILITIES if re.search(each.pattern, text))


NOISE = re.compile(
    r"WARNING: All log messages before absl::InitializeLog"
    r"|To enable the following instructions:"
    r"|[IW]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+\.(cc|h):\d+\]"
    r"|E\d{4} \d\d:\d\d:\d+\.\d+ +\d+ cuda_\w+\.cc:\d+\] failed call to cuInit"
    r"|=== Source Location Trace: ===|(external|tensorflow)/\S+\.(cc|h):\d+$"  # follows that, since 2.22
    r"|/job:\w+/replica:\d+/task:\d+$"
    r"|\S+: \(\w+\): /job:\S+$"  # where an operation is placed, on stdout; stderr has it with a prefix
    r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IW] \S+\.(cc|h):\d+\]"
)
"""Start of the lines that TensorFlow's C++ code logs on start-up. Only the log files keep them; errors are printed."""
LOG_LINE = re.compile(
    r"[IWEF]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ \S+\.(cc|h):\d+\]|\d{4}-\d\d-\d\d .{15,} [IWEF] \S+\.(cc|h):"
)
"""Start of any line that TensorFlow's C++ code logs."""
_BLOCK = re.compile(r"[IW]\d{4} .*\] SessionOptions:|=== Source Location Trace: ===")
_IN_BLOCK = re.compile(r"\w+ \{$|\w+: \S+$|\s+\S|\}$|\S+\.(cc|h):\d+$")
"""A line of the protocol buffer, or of the locations, that follow up to an empty line."""


@dataclass
class NoiseFilter:
    """Leaves out `NOISE`, and blocks of lines: the session options of TensorFlow's servers, and source locations."""

    in_block: bool = False
    """The last line was one of such a block."""

    def keep(self, lines: Sequence[str]) -> Sequence[str]:
        """The lines that are not noise, of those that follow."""
        if not self.in_block and not any(map(NOISE.match, lines)):
            return lines
        return [line for line in lines if not self._is_noise(line)]

    def _is_noise(self, line: str) -> bool:
        if self.in_block:
            self.in_block = _IN_BLOCK.match(line) is not None
            if self.in_block or not line:
                return True
        self.in_block = _BLOCK.match(line) is not None
        return NOISE.match(line) is not None
