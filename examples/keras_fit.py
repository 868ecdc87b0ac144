"""A Keras program that trains under the strategy that `tfdist launch` chose, or without a launcher.

tfdist launch --strategy multiworker --workers 2 -- python examples/keras_fit.py
tfdist bench --suite smoke -- python examples/keras_fit.py
"""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Keras 3's fit fails under several strategies

import tensorflow as tf

import tfdist.measure
import tfdist.strategies

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

history = model.fit(
    tf.keras.utils.experimental.DatasetCreator(replica_batches),
    epochs=tfdist.measure.epochs(3),
    steps_per_epoch=60,
    callbacks=[tfdist.measure.Callback()],
    verbose=2,
)
print(f"accuracy {history.history['accuracy'][-1]:.3f} with {strategy.num_replicas_in_sync} replicas in sync")
