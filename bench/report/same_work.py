"""Whether two records of one arm's name did the same work, and in which options they differ. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from tfdist.models.spec import TrainingSpec

_NO_EFFECT = (
    "format", "steps", "examples", "epochs", "warmup_steps", "steps_per_window", "timeout_collective_s", "evaluate",
    "data_dir", "seed",
)  # fmt: skip
"""Fields of a spec that do not affect the speed of a turn."""
_OPTIONS = (
    "communication", "cross_device", "packs", "bytes_per_pack", "gpu_threads", "variable_partitioner", "placement",
    "intra_op_threads", "gradient_dtype", "steps_per_call", "step_times", "slow_worker", "slow_ms", "slow_factor",
    "memory_growth", "memory_limit_mb", "soft_placement", "log_device_placement",
)  # fmt: skip
"""Fields that say how the same work is done. All others say what is done, on how many devices."""


def work_differences(spec: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    """Differences that make speeds incomparable, as `batch_size: 32, not 16`."""
    return tuple(text for name, text in _differences(spec, other) if name not in _OPTIONS)


def option_differences(spec: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    """Differences in how the same work is done, as `communication: nccl, not ring`."""
    return tuple(text for name, text in _differences(spec, other) if name in _OPTIONS)


def _differences(spec: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys((*spec, *other)):
        value, previous = (_value(each, name) for each in (spec, other))
        if name not in _NO_EFFECT and value != previous:
            yield name, f"{name}: {value}, not {previous}"


def _value(spec: Mapping[str, Any], name: str) -> str:
    """An earlier version of tfdist without that field did what is now the default."""
    return str(spec.get(name, _defaults().get(name)))


@cache
def _defaults() -> Mapping[str, Any]:
    return asdict(TrainingSpec())
