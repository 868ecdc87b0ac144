"""Which operations TensorFlow 2.21 has for which ranks. No TensorFlow."""

from tfdist.models.collectives.op import CollectiveOp
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import CrossDevice, StrategyName
from tfdist.strategies.refusals import Refusal

_REDUCE_TO_ONE = "--cross-device reduction-to-one"


def collective_refusal(op: CollectiveOp, choice: StrategyChoice) -> Refusal | None:
    """Why the ranks of `choice` cannot run `op`, or would run another operation under its name; None if they run it.

    Source: cross_device_ops.py of TensorFlow 2.21. CollectiveAllReduce (multiworker, and mirrored with auto) reduces to
    one device by an all-reduce; NcclAllReduce and HierarchicalCopyAllReduce leave all but the all-reduce to
    ReductionToOneDevice; every CrossDeviceOps broadcasts with the same copies.
    """
    if op is CollectiveOp.ALL_REDUCE:
        return None
    if choice.strategy is StrategyName.MULTI_WORKER:
        return _between_processes(op)
    if op is CollectiveOp.BROADCAST and choice.cross_device is not CrossDevice.AUTO:
        return Refusal("TensorFlow broadcasts by the same copies, whatever it is", "use --cross-device auto")
    if op is CollectiveOp.REDUCE and choice.cross_device is CrossDevice.AUTO:
        return Refusal("TensorFlow would run an all-reduce and use one of its results", f"use {_REDUCE_TO_ONE}")
    if choice.cross_device in (CrossDevice.NCCL, CrossDevice.HIERARCHICAL_COPY):
        return Refusal("TensorFlow leaves this operation to reduction-to-one", f"use {_REDUCE_TO_ONE}")
    return None


def _between_processes(op: CollectiveOp) -> Refusal | None:
    instead = "use --op all-reduce or all-gather, or --devices for the devices of one process"
    if op is CollectiveOp.REDUCE:
        return Refusal("between processes TensorFlow would run an all-reduce and use one of its results", instead)
    if op is CollectiveOp.BROADCAST:
        return Refusal("tf.distribute has no broadcast between processes", instead)
    return None
