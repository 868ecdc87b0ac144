"""tf.distribute.MirroredStrategy: a replica on each device of one process."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfdist.strategies import devices
from tfdist.strategies.catalog import CrossDevice
from tfdist.strategies.choice import StrategyChoice

_DEFAULT_PACKS = 1

CROSS_DEVICE: Mapping[CrossDevice, Callable[[int], Any]] = {
    # None is TensorFlow's own choice: CollectiveAllReduce, over NCCL if all devices are physical GPUs, else a ring.
    CrossDevice.AUTO: lambda packs: None,
    CrossDevice.NCCL: lambda packs: tf.distribute.NcclAllReduce(num_packs=packs),
    CrossDevice.HIERARCHICAL_COPY: lambda packs: tf.distribute.HierarchicalCopyAllReduce(num_packs=packs),
    CrossDevice.REDUCTION_TO_ONE: lambda packs: tf.distribute.ReductionToOneDevice(),
}


def build(choice: StrategyChoice) -> tf.distribute.Strategy:
    """The strategy over all of the task's devices."""
    return tf.distribute.MirroredStrategy(devices.names(choice), cross_device_ops(choice))


def cross_device_ops(choice: StrategyChoice) -> Any:
    """The tf.distribute.CrossDeviceOps that the choice names, or None for TensorFlow's default."""
    return CROSS_DEVICE[choice.cross_device](choice.packs or _DEFAULT_PACKS)
