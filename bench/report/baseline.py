"""The baseline of an arm: the one that does most nearly the same work. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tfdist.models.record import Record, RecordStatus
from tfdist.models.throughput import exchange
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import StrategyName

Baseline = Literal["one device", "independent"]

_WORK = (
    "model", "alpha", "image_size", "classes", "bn_momentum", "dataset", "optimizer", "learning_rate", "precision",
    "keras", "api", "xla", "gpus", "cores_per_device",
)  # fmt: skip
"""Fields of a spec that define the work; the others define how it is distributed."""
_MACHINE = ("cpu", "cores", "gpus", "memory_bytes")
"""Keys of Record.hardware that distinguish machines."""


@dataclass(frozen=True)
class Candidate:
    """A measured arm that may be a baseline."""

    folder: str
    arm: str
    record: Record
    """Of its first measured round."""
    rounds: Mapping[Any, float]
    """The throughput of each round."""


def find_baseline(
    folder: str, records: Sequence[Record], candidates: Sequence[Candidate], which: Baseline
) -> tuple[Candidate, tuple[str, ...]] | None:
    """The baseline of the arm with these records, and its `differences`; None without any.

    `one device` suits every arm; `independent` must have as many devices on as many hosts. The same folder is
    preferred, then the fewest differences, then the first. One from another folder must have no difference.
    """
    record = next((record for record in records if record.status == RecordStatus.OK), None)
    if record is None:
        return None
    suitable = [candidate for candidate in candidates if _suits(candidate.record, record, which)]
    compared = [(candidate, differences(record, candidate.record)) for candidate in suitable]
    allowed = [(candidate, differs) for candidate, differs in compared if candidate.folder == folder or not differs]
    return min(allowed, key=lambda entry: (entry[0].folder != folder, len(entry[1])), default=None)


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
    if spec["batch_size"] != other["batch_size"] and _global_batch(record) != _global_batch(baseline):
        differing.append(f"batch per device: {spec['batch_size']}, not {other['batch_size']}")
    if any(record.hardware.get(key) != baseline.hardware.get(key) for key in _MACHINE):
        differing.append("another machine")
    return tuple(differing)


def _suits(candidate: Record, record: Record, which: Baseline) -> bool:
    strategy = candidate.spec["strategy"]
    if which == "one device":
        return bool(strategy == StrategyName.ONE_DEVICE)
    same_size = (devices_of(candidate), candidate.hosts) == (devices_of(record), record.hosts)
    return exchange(strategy) is Exchange.NONE and same_size


def devices_of(measured: Record) -> int:
    """Number of replicas of the job. A TPU's number of cores is in the records of its tasks."""
    if not CATALOG[StrategyName(measured.spec["strategy"])].replicas_known:
        return sum(rank.replicas for rank in measured.ranks)
    return int(measured.spec["workers"] * measured.spec["devices"])


def _global_batch(record: Record) -> int:
    return int(record.spec["batch_size"] * devices_of(record))
