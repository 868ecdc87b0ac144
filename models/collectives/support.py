"""Which operations TensorFlow 2.21 has for which ranks. No TensorFlow."""

from tfdist.models.collectives.spec import CollectiveOp
from tfdist.strategies.catalog import Refusal
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import CrossDevice, StrategyName

_REDUCE_TO_ONE = "use --cross-device reduction-to-one"
_AS_ALL_REDUCE = Refusal("TensorFlow would run an all-reduce and use one of its results", _REDUCE_TO_ONE)


def collective_refusal(op: CollectiveOp, choice: StrategyChoice) -> Refusal | None:
    """Why the ranks of `choice` cannot run `op`, or would run another operation under its name; None if they run it.

    Source: cross_device_ops.py of TensorFlow 2.21. CollectiveAllReduce (multiworker, and mirrored with auto) reduces to
    one device by an all-reduce; NcclAllReduce and HierarchicalCopyAllReduce leave all but the all-reduce to
    ReductionToOneDevice; every CrossDeviceOps broadcasts with the same copies. Between two CPU devices of one process
    16 MiB were broadcast in 55 us: nothing was copied.
    """
    if op is CollectiveOp.ALL_REDUCE:
        return None
    if choice.strategy is StrategyName.MULTI_WORKER:
        return _AS_ALL_REDUCE if op is CollectiveOp.REDUCE else None
    if op is CollectiveOp.BROADCAST:
        return _broadcast_refusal(choice)
    if op is CollectiveOp.REDUCE and choice.cross_device is CrossDevice.AUTO:
        return _AS_ALL_REDUCE
    if choice.cross_device in (CrossDevice.NCCL, CrossDevice.HIERARCHICAL_COPY):
        return Refusal("TensorFlow leaves this operation to reduction-to-one", _REDUCE_TO_ONE)
    return None


def _broadcast_refusal(choice: StrategyChoice) -> Refusal | None:
    if not choice.gpus:
        reason = "TensorFlow's CPU devices of one process share the buffer, so nothing is copied"
        return Refusal(reason, "use --workers, or GPUs")
    if choice.cross_device is not CrossDevice.AUTO:
        return Refusal("TensorFlow broadcasts by the same copies under each", "use --cross-device auto")
    return None
