"""Whether rows were measured at one batch per device, or at one global batch. Pure."""

from collections.abc import Sequence
from typing import Literal

from tfdist.bench.summary import ArmRow

ScalingSeen = Literal["weak", "strong", "mixed"]

IN_WORDS = {
    "weak": "Weak scaling: every device has the same batch, so more devices do more work in a step",
    "strong": "Strong scaling: the global batch is the same, so more devices share the work of a step",
    "mixed": "Mixed scaling: neither the batch per device nor the global batch is the same in all rows",
}


def scaling_of(rows: Sequence[ArmRow]) -> ScalingSeen:
    """What the batch sizes show; `weak` where they show both. Rows without known sizes say nothing."""
    if len({row.batch_per_replica for row in rows if row.batch_per_replica}) <= 1:
        return "weak"
    return "strong" if len({row.batch_global for row in rows if row.batch_global}) <= 1 else "mixed"
