"""What one operation exchanges. Pure: no TensorFlow."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from tfdist.models.collectives.spec import CollectiveOp, CollectiveSpec

MOST_ITERATIONS = 100_000
"""Maximum number of iterations in one sample."""


@dataclass(frozen=True)
class SizeCase:
    """The tensors of one operation."""

    elements: tuple[int, ...]
    """Number of elements of each tensor that a rank contributes."""
    bytes: int
    """Bytes of all of them; for all-gather, of the result."""
    pack_bytes: int = 0
    """CommunicationOptions.bytes_per_pack; 0: not set."""


def cases_of(spec: CollectiveSpec, gradients: Sequence[int]) -> tuple[SizeCase, ...]:
    """The cases of `spec`: its sizes, rounded down to whole elements, then the gradients in packs of each size.

    Args:
        spec: the number of its replicas is that of the ranks.
        gradients: elements of each gradient of the model; empty: none.
    """
    item = spec.gradient_dtype.item_bytes
    parts = spec.replicas if spec.op is CollectiveOp.ALL_GATHER else 1
    counts = dict.fromkeys(max(1, size // (item * parts)) for size in spec.sizes)
    single = [SizeCase((count,), count * item * parts) for count in counts]
    packs = spec.pack_sizes if gradients else ()
    return (*single, *(SizeCase(tuple(gradients), sum(gradients) * item, pack) for pack in packs))


def shuffled(cases: Sequence[SizeCase], seed: int, turn: int) -> list[SizeCase]:
    """The cases in the order of a turn, the same on all ranks."""
    order = list(cases)
    random.Random(f"{seed}/{turn}").shuffle(order)
    return order


def iterations_for(seconds: float, operation_s: float) -> int:
    """Operations that take `seconds` at `operation_s` each, at least 1."""
    return min(MOST_ITERATIONS, max(1, ceil(seconds / max(operation_s, 1e-9))))
