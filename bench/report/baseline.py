"""The baseline of an arm: the one of its folder that does most nearly the same work. Pure."""

from collections.abc import Sequence
from typing import Literal

from tfdist.bench.report.arm_records import ArmRecords, devices_of
from tfdist.models.record import Record
from tfdist.models.throughput import exchange
from tfdist.strategies.catalog import Exchange
from tfdist.strategies.options import StrategyName

Baseline = Literal["one device", "independent"]

_WORK = (
    "model", "alpha", "image_size", "classes", "bn_momentum", "dataset", "optimizer", "learning_rate", "precision",
    "keras", "api", "xla", "gpus", "cores_per_device", "command",
)  # fmt: skip
"""Fields of a spec that define the work; the others define how it is distributed."""
_MACHINE = ("cpu", "cores", "gpus", "memory_bytes")
"""Keys of Record.hardware that distinguish machines."""


def find_baseline(
    arm: ArmRecords, arms: Sequence[ArmRecords], which: Baseline
) -> tuple[ArmRecords, tuple[str, ...]] | None:
    """The baseline of a measured arm, and its `differences`; None without any.

    `one device` suits every arm; `independent` must have as many devices on as many hosts. The one with the fewest
    differences, then the first. Turns of other folders did not alternate with the arm's: none of those.
    """
    if not arm.measured:
        return None
    record = arm.measured[0]
    suitable = [other for other in arms if other.folder == arm.folder and _suits(other, record, which)]
    compared = [(other, differences(record, other.measured[0])) for other in suitable]
    return min(compared, key=lambda entry: len(entry[1]), default=None)


def differences(record: Record, baseline: Record) -> tuple[str, ...]:
    """How work and machine differ, as `precision: mixed_float16, not float32`.

    One of the two batch sizes may differ: the global one in weak scaling, the one per device in strong.
    """
    spec, other = record.spec, baseline.spec
    differing = [
        f"{key.replace('_', ' ')}: {spec.get(key)}, not {other.get(key)}"
        for key in _WORK
        if spec.get(key) != other.get(key)
    ]
    if spec.get("batch_size") != other.get("batch_size") and _global_batch(record) != _global_batch(baseline):
        differing.append(f"batch per device: {spec.get('batch_size')}, not {other.get('batch_size')}")
    if any(record.hardware.get(key) != baseline.hardware.get(key) for key in _MACHINE):
        differing.append("another machine")
    return tuple(differing)


def _suits(other: ArmRecords, record: Record, which: Baseline) -> bool:
    if not other.measured:
        return False
    if which == "one device":
        return other.strategy is StrategyName.ONE_DEVICE
    candidate = other.measured[0]
    same_size = (devices_of(candidate), candidate.hosts) == (devices_of(record), record.hosts)
    return exchange(other.strategy) is Exchange.NONE and same_size


def _global_batch(record: Record) -> int | None:
    """None: the user's own program decides."""
    batch = record.spec.get("batch_size")
    return batch and int(batch * devices_of(record))
