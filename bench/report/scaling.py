"""Whether rows were measured at one batch per device, or at one global batch. Pure."""

from collections.abc import Iterable, Sequence
from typing import Literal

from tfdist.bench.report.summary import ArmRow

ScalingSeen = Literal["weak", "strong", "mixed"]

IN_WORDS = {
    "weak": "Weak scaling: every device has the same batch, so more devices do more work in a step",
    "strong": "Strong scaling: the global batch is the same, so more devices share the work of a step",
    "mixed": "Mixed scaling: neither the batch per device nor the global batch is the same in all rows",
}


def scaling_of(rows: Sequence[ArmRow]) -> ScalingSeen:
    """What the batch sizes show within each folder; `weak` where they show both. Unknown sizes say nothing."""
    known = [row for row in rows if row.batch_per_replica and row.batch_global]
    if _same_within_folders((row.folder, row.batch_per_replica) for row in known):
        return "weak"
    return "strong" if _same_within_folders((row.folder, row.batch_global) for row in known) else "mixed"


def _same_within_folders(sizes: Iterable[tuple[str, int | None]]) -> bool:
    distinct = set(sizes)
    return len(distinct) == len({folder for folder, _ in distinct})
