"""What a collective measurement exchanges, and how: complete before any process starts. Tasks receive it as JSON."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tfdist.launch.str_enum import StrEnum
from tfdist.models.spec import Architecture
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import GradientDtype


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


_BUS_FACTOR: Mapping[CollectiveOp, Callable[[int], float]] = {
    CollectiveOp.ALL_REDUCE: lambda ranks: 2 * (ranks - 1) / ranks,
    CollectiveOp.ALL_GATHER: lambda ranks: (ranks - 1) / ranks,
    CollectiveOp.BROADCAST: lambda ranks: 1.0,
    CollectiveOp.REDUCE: lambda ranks: 1.0,
}


def algbw(size_bytes: float, seconds: float) -> float:
    """The algorithm bandwidth in decimal GB/s: the size over the time."""
    return size_bytes / seconds / 1e9


def bus_factor(op: CollectiveOp, ranks: int) -> float:
    """busbw over algbw: how often each byte crosses a rank's link at least.

    So busbw can be compared with the bandwidth of the hardware, whatever the number of ranks is.
    Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    return _BUS_FACTOR[op](ranks)


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
