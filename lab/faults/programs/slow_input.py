"""A program of a user whose worker-1 waits 30 ms for each batch. python slow_input.py STEPS."""

import os
import sys
import time
from collections.abc import Iterator

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow as tf

import tfdist.measure
import tfdist.strategies

strategy = tfdist.strategies.current()
with strategy.scope():
    weights = tf.Variable(tf.zeros([1000, 10]))


class Batches:
    """Batches of this worker."""

    def __iter__(self) -> Iterator[tf.Tensor]:
        for _ in range(int(sys.argv[1])):
            if os.environ["TFDIST_TASK"] == "worker-1":
                time.sleep(0.03)
            yield tf.ones([32, 1000])


@tf.function
def step(batch: tf.Tensor) -> None:
    """Add up all workers' updates."""

    def replica_step() -> None:
        gradient = tf.matmul(batch, batch @ weights - 1.0, transpose_a=True)
        total = tf.distribute.get_replica_context().all_reduce("sum", gradient)
        tf.distribute.get_replica_context().merge_call(
            lambda strategy, value: strategy.extended.update(
                weights, lambda v, g: v.assign_sub(1e-6 * g), args=(value,)
            ),
            args=(total,),
        )

    strategy.run(replica_step)


for batch in tfdist.measure.steps(Batches(), examples=64):
    step(batch)
