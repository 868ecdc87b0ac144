"""tf.distribute.MirroredStrategy: a replica on each device of one process."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfdist.strategies import devices
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import CrossDevice

_CROSS_DEVICE_OPS: Mapping[CrossDevice, Callable[[int], Any]] = {
    # None: TensorFlow uses CollectiveAllReduce, over NCCL if all devices are physical GPUs, else over a ring.
    CrossDevice.AUTO: lambda packs: None,
    CrossDevice.NCCL: lambda packs: tf.distribute.NcclAllReduce(num_packs=packs),
    CrossDevice.HIERARCHICAL_COPY: lambda packs: tf.distribute.HierarchicalCopyAllReduce(num_packs=packs),
    CrossDevice.REDUCTION_TO_ONE: lambda packs: tf.distribute.ReductionToOneDevice(),
}


def build(choice: StrategyChoice) -> tf.distribute.Strategy:
    """The strategy over all devices of this task."""
    return tf.distribute.MirroredStrategy(devices.names(choice), cross_device_ops(choice))


def cross_device_ops(choice: StrategyChoice) -> Any:
    """The tf.distribute.CrossDeviceOps of `choice`; None: TensorFlow's default."""
    return _CROSS_DEVICE_OPS[choice.cross_device](choice.packs or 1)
