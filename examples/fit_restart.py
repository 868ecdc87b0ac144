"""A Keras program that continues after a restart, under any strategy, also without a launcher.

    tfdist launch --strategy multiworker --workers 2 --checkpoint-dir backup --max-restarts 3 -- \\
        python examples/fit_restart.py

Kill a worker with `kill -9` while it trains. The folder must be the same on all hosts.
"""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Keras 3's fit fails under several strategies

import tensorflow as tf

import tfdist.measure
import tfdist.strategies

folder = os.environ.get("TFDIST_CHECKPOINT_DIR") or os.environ.get("TFDIST_ARM_DIR", "backup")
attempt = os.environ.get("TFDIST_ATTEMPT", "0")  # counts the restarts
strategy = tfdist.strategies.current()


def replica_batches(context):
    """Batches of one replica; each of several workers gets a different part of the data."""
    points = tf.random.stateless_uniform((4096, 2), seed=(1, 2), minval=-1.0)
    labels = tf.cast(points[:, 1] > tf.sin(3.0 * points[:, 0]), tf.int32)
    data = tf.data.Dataset.from_tensor_slices((points, labels))
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.shuffle(4096).repeat().batch(32).prefetch(2)


with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(32, activation="relu", input_shape=(2,)), tf.keras.layers.Dense(2)]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])

# Saves model, optimizer and the number of epochs after each epoch; fit then starts with the next one. The backup is
# removed when fit has finished.
backup = tf.keras.callbacks.BackupAndRestore(folder)

history = model.fit(
    tf.keras.utils.experimental.DatasetCreator(replica_batches),
    epochs=tfdist.measure.epochs(20),
    steps_per_epoch=60,
    callbacks=[backup, tfdist.measure.Callback()],
    verbose=2,
)
print(
    f"attempt {attempt}: accuracy {history.history['accuracy'][-1]:.3f} after step {model.optimizer.iterations.numpy()}"
)
