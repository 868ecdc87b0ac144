"""Which arm another is held against: the one that does most nearly the same work. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tfdist.bench.record import Record
from tfdist.bench.statistics import exchange
from tfdist.strategies.catalog import Exchange

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

    `one device` fits every arm; `independent` must have as many replicas as the arm. One from another folder must have
    done the same work on a machine of the same kind. None if nothing was measured or nothing fits.
    """
    mine = next((record for record in records if record.status == "ok"), None)
    if mine is None:
        return None
    fitting = [candidate for candidate in candidates if _fits(candidate.record.spec, mine.spec, which)]
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


def _fits(candidate: Mapping[str, Any], mine: Mapping[str, Any], which: Baseline) -> bool:
    alone = exchange(candidate["strategy"]) is Exchange.NONE
    if which == "one device":
        return not alone and candidate["strategy"] == "one-device"
    return alone and replicas(candidate) == replicas(mine)


def replicas(spec: Mapping[str, Any]) -> int:
    """Of a complete spec."""
    return int(spec["workers"] * spec["devices"])


def _global(record: Record) -> int:
    return int(record.spec["batch_size"] * replicas(record.spec))
