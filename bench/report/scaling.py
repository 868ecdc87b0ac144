"""Whether rows have the same batch per device, or the same global batch. Pure."""

from collections.abc import Iterable, Sequence
from typing import Literal

from tfdist.bench.report.summary import ArmRow

Scaling = Literal["weak", "strong", "mixed"]

DESCRIPTIONS = {
    "weak": "Weak scaling: every device has the same batch, so more devices do more work in a step",
    "strong": "Strong scaling: the global batch is the same, so more devices share the work of a step",
    "mixed": "Mixed scaling: neither the batch per device nor the global batch is the same in all rows",
}


def scaling_of(rows: Sequence[ArmRow]) -> Scaling:
    """The scaling that the batch sizes within each folder show; `weak` if they show both. Unknown sizes are ignored."""
    known = [row for row in rows if row.batch_per_replica and row.batch_global]
    if _same_within_folders((row.folder, row.batch_per_replica) for row in known):
        return "weak"
    return "strong" if _same_within_folders((row.folder, row.batch_global) for row in known) else "mixed"


def _same_within_folders(sizes: Iterable[tuple[str, int | None]]) -> bool:
    distinct = set(sizes)
    return len(distinct) == len({folder for folder, _ in distinct})
