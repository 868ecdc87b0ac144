"""What a collective measurement exchanges, and how: complete before any process starts. Tasks receive it as JSON.

And which operations TensorFlow has for which ranks. No TensorFlow.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from tfdist.launch.str_enum import StrEnum
from tfdist.models.spec import Architecture
from tfdist.strategies.catalog import CATALOG, Refusal
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import CrossDevice, GradientDtype


class CollectiveOp(StrEnum):
    """A collective operation, by the words of MPI and NCCL."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    BROADCAST = "broadcast"
    REDUCE = "reduce-to-one"

    @property
    def reduces(self) -> bool:
        """It sums; otherwise it copies."""
        return self in (CollectiveOp.ALL_REDUCE, CollectiveOp.REDUCE)


def algbw(size_bytes: float, seconds: float) -> float:
    """The algorithm bandwidth in decimal GB/s: the size over the time."""
    return size_bytes / seconds / 1e9


def bus_factor(op: CollectiveOp, ranks: int) -> float:
    """busbw over algbw: how often each byte crosses a rank's link at least.

    So busbw can be compared with the bandwidth of the hardware, whatever the number of ranks is.
    Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    if op is CollectiveOp.ALL_REDUCE:
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op is CollectiveOp.ALL_GATHER else 1.0


@dataclass(frozen=True)
class CollectiveSpec(StrategyChoice):
    """A strategy, and the operation that its replicas run with buffers of several sizes."""

    VARIABLE: ClassVar[str] = "TFDIST_COLLECTIVE_SPEC"

    op: CollectiveOp = CollectiveOp.ALL_REDUCE
    sizes: tuple[int, ...] = ()
    """Bytes of single tensors: of each rank's buffer; for all-gather, of the result."""
    model_gradients: bool = False
    """Also exchange all gradients of the model in one call, as a training step does."""
    pack_sizes: tuple[int, ...] = (0,)
    """CommunicationOptions.bytes_per_pack values for the model's gradients; 0: one all-reduce for all of them."""
    model: Architecture = Architecture.MOBILENET_V2
    alpha: float = 1.0
    classes: int = 1000
    gradient_dtype: GradientDtype = GradientDtype.FLOAT32
    turn_s: float = 2.0
    """Timed seconds of a turn, divided equally between the sizes; at least one operation of each is run."""
    seed: int = 0
    """Seed of the order of sizes in each turn."""


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
    return random.Random(f"{seed}/{turn}").sample(cases, len(cases))


def iterations_for(seconds: float, operation_s: float) -> int:
    """Operations that take `seconds` at `operation_s` each, at least 1."""
    return min(MOST_ITERATIONS, max(1, ceil(seconds / max(operation_s, 1e-9))))


_REDUCE_TO_ONE = "use --cross-device reduction-to-one"
_AS_ALL_REDUCE = Refusal("TensorFlow would run an all-reduce and use one of its results", _REDUCE_TO_ONE)


def collective_refusal(op: CollectiveOp, choice: StrategyChoice) -> Refusal | None:
    """Why the ranks of `choice` cannot run `op`, or would run another operation under its name; None if they run it.

    Source: cross_device_ops.py of TensorFlow 2.21 and 2.22. CollectiveAllReduce (multiworker, and mirrored with auto)
    reduces to one device by an all-reduce; NcclAllReduce and HierarchicalCopyAllReduce leave all but the all-reduce to
    ReductionToOneDevice; every CrossDeviceOps broadcasts with the same copies. Between two CPU devices of one process
    16 MiB were broadcast in 55 us: nothing was copied.
    """
    if op is CollectiveOp.ALL_REDUCE:
        return None
    if CATALOG[choice.strategy].all_reduce == "communication":
        return _AS_ALL_REDUCE if op is CollectiveOp.REDUCE else None
    if op is CollectiveOp.BROADCAST and not choice.gpus:
        reason = "TensorFlow's CPU devices of one process share the buffer, so nothing is copied"
        return Refusal(reason, "use --workers, or GPUs")
    if op is CollectiveOp.BROADCAST and choice.cross_device is not CrossDevice.AUTO:
        return Refusal("TensorFlow broadcasts in the same way with each of them", "use --cross-device auto")
    if op is CollectiveOp.REDUCE and choice.cross_device is CrossDevice.AUTO:
        return _AS_ALL_REDUCE
    if choice.cross_device in (CrossDevice.NCCL, CrossDevice.HIERARCHICAL_COPY):
        return Refusal("TensorFlow runs this operation as reduction-to-one", _REDUCE_TO_ONE)
    return None
