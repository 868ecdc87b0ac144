"""No strategy: the loop runs as plain TensorFlow, on the first device of the task."""

import tensorflow as tf

from tfdist.strategies.choice import StrategyChoice


def build(choice: StrategyChoice) -> tf.distribute.Strategy:
    """TensorFlow's default strategy: its `run` calls the function, and its `reduce` returns the value."""
    return tf.distribute.get_strategy()
