"""tf.distribute.MirroredStrategy: a replica on each device of one process."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfdist.models.spec import TrainingSpec
from tfdist.strategies import devices
from tfdist.strategies.catalog import CrossDevice

_DEFAULT_PACKS = 1

CROSS_DEVICE: Mapping[CrossDevice, Callable[[int], Any]] = {
    # None is TensorFlow's own choice: CollectiveAllReduce, over NCCL if all devices are physical GPUs, else a ring.
    CrossDevice.AUTO: lambda packs: None,
    CrossDevice.NCCL: lambda packs: tf.distribute.NcclAllReduce(num_packs=packs),
    CrossDevice.HIERARCHICAL_COPY: lambda packs: tf.distribute.HierarchicalCopyAllReduce(num_packs=packs),
    CrossDevice.REDUCTION_TO_ONE: lambda packs: tf.distribute.ReductionToOneDevice(),
}


def build(spec: TrainingSpec) -> tf.distribute.Strategy:
    """The strategy over all of the task's devices."""
    return tf.distribute.MirroredStrategy(devices.names(spec), cross_device_ops(spec))


def cross_device_ops(spec: TrainingSpec) -> Any:
    """The tf.distribute.CrossDeviceOps that the spec names, or None for TensorFlow's default."""
    return CROSS_DEVICE[spec.cross_device](spec.packs or _DEFAULT_PACKS)
