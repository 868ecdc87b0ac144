"""Known incompatibilities of TensorFlow 2.21 and Keras: how a program shows them, and what to do.

Each pattern was seen in a run with tensorflow 2.21.0, keras 3.15.1 and tf_keras 2.21.0.
"""

import re
from collections.abc import Callable, Mapping
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
        "tf.summary and the TensorBoard callback need the package tensorboard, which TensorFlow 2.21 does not install",
        "install it on every host: pip install tensorboard",
    ),
)


def hints(text: str) -> tuple[str, ...]:
    """What is wrong and what to do, for each known incompatibility that a task's output shows."""
    return tuple(each.sentence for each in INCOMPATIBILITIES if re.search(each.pattern, text))
