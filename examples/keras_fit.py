"""A plain Keras program that trains under whatever strategy `tfdist launch` chose, and alone.

tfdist launch --strategy multiworker --workers 2 -- python examples/keras_fit.py
"""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Keras 3 does not fit under every strategy

import tensorflow as tf

import tfdist.strategies

strategy = tfdist.strategies.current()


def above_the_wave(context):
    """One replica's batches; a worker among several gets its own part."""
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

history = model.fit(tf.keras.utils.experimental.DatasetCreator(above_the_wave), epochs=3, steps_per_epoch=60, verbose=2)
print(f"accuracy {history.history['accuracy'][-1]:.3f} with {strategy.num_replicas_in_sync} replicas in sync")
