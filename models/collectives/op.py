"""The collective operations that can be measured, and their bandwidths. No TensorFlow."""

from collections.abc import Callable, Mapping

from tfdist.launch.str_enum import StrEnum


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
