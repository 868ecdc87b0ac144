"""tf.distribute.experimental.CentralStorageStrategy: one copy of the variables, a replica on each device."""

import tensorflow as tf

from tfdist.models.spec import TrainingSpec
from tfdist.strategies import devices


def build(spec: TrainingSpec) -> tf.distribute.Strategy:
    """The strategy over all of the task's devices, with the variables on the CPU."""
    return tf.distribute.experimental.CentralStorageStrategy(devices.names(spec), parameter_device="CPU:0")
