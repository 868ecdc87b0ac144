"""The arms that an explanation compares an arm with: the same work, distributed in another way or not at all. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from tfdist.launch.str_enum import StrEnum
from tfdist.models.datasets.table import SYNTHETIC
from tfdist.models.spec import TrainingSpec
from tfdist.models.throughput import exchange
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import Api, StrategyName

Spec = Mapping[str, Any]
"""TrainingSpec.to_json, or StrategyChoice.to_json with a command."""


class Reference(StrEnum):
    """What an arm is compared with; each but SYNTHETIC is a strategy."""

    PLAIN = "no-strategy"
    """One device without tf.distribute."""
    ONE_DEVICE = "one-device"
    INDEPENDENT = "independent"
    """The same number of devices, without exchange."""
    SYNTHETIC = "synthetic"
    """The same arm with data that costs nothing."""


OPTIONS = (
    "communication", "cross_device", "packs", "bytes_per_pack", "gpu_threads", "variable_partitioner", "placement",
    "intra_op_threads", "gradient_dtype", "steps_per_call", "step_times", "slow_worker", "slow_ms", "slow_factor",
    "memory_growth", "memory_limit_mb", "soft_placement", "log_device_placement",
)  # fmt: skip
"""Fields of a spec that say how the same work is done on the same devices."""
DISTRIBUTION = (
    "strategy", "workers", "ps", "devices", "sync", "backup_workers", "timeout_collective_s", "count_updates", *OPTIONS,
)  # fmt: skip
"""Fields of a spec that say how work is distributed; the others say what the work is."""
NO_EFFECT = ("format", "steps", "examples", "epochs", "warmup_steps", "steps_per_window", "evaluate", "evaluate_turns")
"""Fields of a spec that do not change a turn."""
_DATA = ("dataset", "data_dir", "shuffle")


def replicas(spec: Spec) -> int:
    """Replicas of the whole job."""
    return int(spec.get("workers", 1) * spec.get("devices", 1))


def explainable(spec: Spec) -> bool:
    """Whether the loss of an arm can be explained: it has several devices that exchange something."""
    row = CATALOG[StrategyName(spec["strategy"])]
    return exchange(spec) is not Exchange.NONE and row.replicas_known and replicas(spec) > 1


def has_step_times(spec: Spec) -> bool:
    """Whether the steps of an arm can be timed from the inside: those of tfdist's own synchronous loop."""
    row = CATALOG[StrategyName(spec["strategy"])]
    loop = spec.get("api") == Api.LOOP and spec.get("steps_per_call", 1) == 1
    synchronous = exchange(spec) is not Exchange.ASYNC and not row.graph
    return loop and synchronous and row.replicas_known and "command" not in spec


def reference(spec: Spec, which: Reference) -> dict[str, Any]:
    """The spec of the reference of an arm with this spec."""
    if which is Reference.SYNTHETIC:
        data = {"dataset": SYNTHETIC, "data_dir": None, "shuffle": TrainingSpec.shuffle}
        return {**spec, **{key: value for key, value in data.items() if key in spec}}
    plain = {key: getattr(TrainingSpec, key) for key in DISTRIBUTION if key in spec}
    workers = replicas(spec) if which is Reference.INDEPENDENT else 1
    return {**spec, **plain, "strategy": StrategyName(which), "workers": workers}


def identity(spec: Spec) -> str:
    """Equal for arms that do the same, apart from reporting step times. Synthetic data is neither read nor shuffled."""
    ignored = {*NO_EFFECT, "step_times"}
    if spec.get("dataset") == SYNTHETIC:
        ignored.update(_DATA)
    values = {key: value for key, value in spec.items() if key not in ignored or key == "dataset"}
    return json.dumps(values, sort_keys=True)
