"""A program without tfdist in it: TensorFlow reads TF_CONFIG, as in its multi-worker tutorial.

    tfdist launch --strategy multiworker --workers 2 -- python examples/tf_config_only.py

https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras
"""

import json
import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Keras 3's fit fails under MultiWorkerMirroredStrategy

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])

images = tf.random.stateless_uniform((2048, 16, 16, 1), seed=(1, 2))
labels = tf.cast(
    tf.reduce_mean(images[:, :8], axis=(1, 2, 3)) > tf.reduce_mean(images[:, 8:], axis=(1, 2, 3)), tf.int32
)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
data = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().batch(32 * workers).with_options(options)

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Flatten(input_shape=(16, 16, 1)), tf.keras.layers.Dense(2)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])

history = model.fit(data, epochs=3, steps_per_epoch=32, verbose=2)
print(f"accuracy {history.history['accuracy'][-1]:.3f} with {strategy.num_replicas_in_sync} replicas in sync")
