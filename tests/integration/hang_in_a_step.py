"""Sums over workers with `tfdist.measure.steps` until worker-1 hangs as the first argument says, from step 30 on."""

import os
import sys
import time

import tensorflow as tf

import tfdist.measure
from tfdist.strategies import current

HOW = sys.argv[1]
HANGS = os.environ["TFDIST_TASK"] == "worker-1"
calls = 0


def read_image(index):
    """A stand-in for reading from a file server that does not answer any more."""
    while HOW == "reading" and HANGS and index >= 30:
        time.sleep(1)
    return index


def images():
    for index in range(1000):
        yield read_image(index)


def augment():
    global calls
    calls += 1
    while HANGS and calls == 30:
        time.sleep(1)


strategy = current()
data = tf.data.Dataset.from_generator(images, output_signature=tf.TensorSpec((), tf.float32)).prefetch(2)


@tf.function
def step(image):
    doubled = strategy.run(lambda value: 2 * value, (image,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, doubled, axis=None)


for image in tfdist.measure.steps(data, examples=2):
    if HOW == "augmenting":
        augment()
    step(image)
    time.sleep(0.02)
