"""The values that ranks exchange, and the number of wrong elements in a result. No TensorFlow."""

from typing import TYPE_CHECKING, Any

from tfdist.models.collectives.op import CollectiveOp

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]

_EXACT = 256
"""The largest sum: bfloat16 represents all integers up to it exactly, so every order of summation has one result."""
_CHUNK = 1 << 20
"""Elements that are compared at a time: a result may take a large part of the memory."""


def period(ranks: int) -> int:
    """The number of distinct values: each rank's elements count 0, 1, ... period - 1 again and again."""
    return max(2, min(8, 1 + _EXACT // ranks))


def own_values(elements: int, rank: int, ranks: int, tensor: int, dtype: "type[np.generic]") -> "Array":
    """What a rank contributes; `tensor` is its index in the list of tensors that are exchanged together."""
    import numpy as np

    size = period(ranks)
    return np.resize((np.arange(size) + 3 * rank + tensor) % size, elements).astype(dtype)


def wrong_elements(op: CollectiveOp, result: "Array", elements: int, ranks: int, tensor: int) -> int:
    """The number of elements of one rank's result that differ from the right ones; all of them if its length does.

    Args:
        op: that gave the result.
        result: one-dimensional; of reduce-to-one, that of the destination.
        elements: that each rank contributed.
        ranks: that took part.
        tensor: as for `own_values`.
    """
    import numpy as np

    gathers = op is CollectiveOp.ALL_GATHER
    expected = elements * (ranks if gathers else 1)
    if len(result) != expected:
        return expected
    own = [own_values(period(ranks), rank, ranks, tensor, np.int64) for rank in range(ranks)]
    if gathers:
        return sum(map(_differing, np.split(result, ranks), own))
    return _differing(result, np.sum(own, axis=0) if op.reduces else own[0])


def _differing(result: "Array", repeated: "Array") -> int:
    import numpy as np

    chunk = len(repeated) * (_CHUNK // len(repeated))
    expected = np.resize(repeated, min(chunk, len(result))).astype(result.dtype)
    parts = (result[start : start + chunk] for start in range(0, len(result), chunk))
    return sum(int(np.count_nonzero(part != expected[: len(part)])) for part in parts)
