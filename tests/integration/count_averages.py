"""A program under parameter-server: averages that start at 0 follow a weight of 1 for N steps on all workers.

Prints the average, which is `1 - decay ** N` if no update is lost.
"""

import os
import sys

import tensorflow as tf

from tfdist.models.training.moving_averages import create
from tfdist.strategies import current

DECAY = 0.99


def main(steps: int) -> None:
    strategy = current()
    coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
        model.build((None, 1))
        averages = create(DECAY, model)
    averages.averages[0].assign([[0.0]])
    step = tf.function(lambda: strategy.run(averages.update))
    for _ in range(steps):
        coordinator.schedule(step)
    coordinator.join()
    print("average", float(averages.averages[0].numpy()[0, 0]), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)
