"""tf.distribute.OneDeviceStrategy: the baseline, and each process of `independent`."""

import tensorflow as tf

from tfdist.strategies import devices
from tfdist.strategies.choice import StrategyChoice


def build(choice: StrategyChoice) -> tf.distribute.Strategy:
    """The strategy on the first device of this task."""
    return tf.distribute.OneDeviceStrategy(devices.names(choice)[0])
