"""Trains with TensorFlow's PreemptionCheckpointHandler, which saves when one worker gets SIGTERM, and exits with 42.

The first attempt trains until it is preempted; a later one ten more steps.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf

import tfdist.strategies

folder, steps = os.environ["TFDIST_CHECKPOINT_DIR"], 1_000_000
strategy = tfdist.strategies.current()
with strategy.scope():
    step = tf.Variable(0, dtype=tf.int64, trainable=False)
    total = tf.Variable(0.0)
handler = tf.distribute.experimental.PreemptionCheckpointHandler(
    strategy.cluster_resolver, tf.train.Checkpoint(step=step, total=total), folder
)
print(f"from step {step.numpy()}", flush=True)
if step.numpy():
    assert total.numpy() == strategy.num_replicas_in_sync * step.numpy()
    steps = step.numpy() + 10


@tf.function
def train_step():
    """Adds 1 from each replica."""

    def replica_step():
        step.assign_add(1)
        total.assign_add(tf.distribute.get_replica_context().all_reduce("SUM", 1.0))

    strategy.run(replica_step)


while step.numpy() < steps:
    handler.run(train_step)
    if step.numpy() == 5:
        print("trains", flush=True)
print(f"done at step {step.numpy()}", flush=True)
