"""Which arm another is held against: the one that does most nearly the same work. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tfdist.models.record import Record
from tfdist.models.throughput import exchange
from tfdist.strategies.catalog import CATALOG, Exchange
from tfdist.strategies.options import StrategyName

Baseline = Literal["one device", "independent"]

_WORK = (
    "model", "alpha", "image_size", "classes", "bn_momentum", "dataset", "optimizer", "learning_rate", "precision",
    "keras", "api", "xla", "gpus", "cores_per_device",
)  # fmt: skip
"""The fields of a spec that are the work itself. The others say how it is spread."""
_MACHINE = ("cpu", "cores", "gpus", "memory_bytes")
"""The keys of Record.hardware that make a machine another one."""


@dataclass(frozen=True)
class Candidate:
    """A measured arm."""

    folder: str
    arm: str
    record: Record
    """Of its first measured round."""
    rounds: Mapping[Any, float]
    """Its throughput in each."""


def find_baseline(
    folder: str, records: Sequence[Record], candidates: Sequence[Candidate], which: Baseline
) -> tuple[Candidate, tuple[str, ...]] | None:
    """The fitting arm that differs least, and in what: of the same folder if there is one, the first of equals.

    `one device` fits every arm; `independent` must have had as many devices as the arm, on as many hosts. One from
    another folder must have done the same work on a machine of the same kind. None if nothing was measured or nothing
    fits.
    """
    mine = next((record for record in records if record.status == "ok"), None)
    if mine is None:
        return None
    fitting = [candidate for candidate in candidates if _fits(candidate.record, mine, which)]
    found = [(candidate, differences(mine, candidate.record)) for candidate in fitting]
    allowed = [(candidate, differs) for candidate, differs in found if candidate.folder == folder or not differs]
    return min(allowed, key=lambda entry: (entry[0].folder != folder, len(entry[1])), default=None)


def differences(mine: Record, other: Record) -> tuple[str, ...]:
    """What is not the same about the work and the machine, as `precision: mixed_float16, not float32`.

    Of the batch sizes one may differ (the global one in weak scaling, the per-replica one in strong), not both.
    """
    found = [
        f"{key.replace('_', ' ')}: {mine.spec.get(key)}, not {other.spec.get(key)}"
        for key in _WORK
        if mine.spec.get(key) != other.spec.get(key)
    ]
    if mine.spec["batch_size"] != other.spec["batch_size"] and _global(mine) != _global(other):
        found.append(f"batch per device: {mine.spec['batch_size']}, not {other.spec['batch_size']}")
    if any(mine.hardware.get(key) != other.hardware.get(key) for key in _MACHINE):
        found.append("another machine")
    return tuple(found)


def _fits(candidate: Record, mine: Record, which: Baseline) -> bool:
    strategy = candidate.spec["strategy"]
    if which == "one device":
        return bool(strategy == StrategyName.ONE_DEVICE)
    alike = (devices_of(candidate), candidate.hosts) == (devices_of(mine), mine.hosts)
    return exchange(strategy) is Exchange.NONE and alike


def devices_of(measured: Record) -> int:
    """How many replicas the job had. How many cores a TPU has is known only to the tasks that ran on it."""
    if not CATALOG[StrategyName(measured.spec["strategy"])].replicas_known:
        return sum(rank.replicas for rank in measured.ranks)
    return int(measured.spec["workers"] * measured.spec["devices"])


def _global(record: Record) -> int:
    return int(record.spec["batch_size"] * devices_of(record))
