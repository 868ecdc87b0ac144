"""tf.distribute.OneDeviceStrategy: the baseline, and each process of `independent`."""

import tensorflow as tf

from tfdist.models.spec import TrainingSpec
from tfdist.strategies import devices


def build(spec: TrainingSpec) -> tf.distribute.Strategy:
    """The strategy on the task's first device."""
    return tf.distribute.OneDeviceStrategy(devices.names(spec)[0])
