"""tf.distribute.experimental.CentralStorageStrategy: one copy of the variables, a replica on each device."""

import tensorflow as tf

from tfdist.strategies import devices
from tfdist.strategies.choice import StrategyChoice


def build(choice: StrategyChoice) -> tf.distribute.Strategy:
    """The strategy over all devices of this task, with the variables on the CPU."""
    return tf.distribute.experimental.CentralStorageStrategy(devices.names(choice), parameter_device="CPU:0")
