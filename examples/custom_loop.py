"""A training loop of its own, under any strategy that `tfdist launch` chose, or without a launcher.

tfdist launch --strategy parameter-server --workers 2 --ps 1 -- python examples/custom_loop.py
tfdist bench --suite smoke -- python examples/custom_loop.py
"""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")  # Keras 3 loses updates under ParameterServerStrategy

import tensorflow as tf

import tfdist.measure
import tfdist.strategies

strategy = tfdist.strategies.current()
batch_size = 32 * strategy.num_replicas_in_sync  # global
epochs = tfdist.measure.epochs(3)  # in a bench, as many as it takes


def batches():
    """Global batches of points and of which side of a curve they are on."""
    points = tf.random.stateless_uniform((4096, 2), seed=(1, 2), minval=-1.0)
    labels = tf.cast(points[:, 1] > tf.sin(3.0 * points[:, 0]), tf.int32)
    data = tf.data.Dataset.from_tensor_slices((points, labels)).shuffle(4096).repeat(epochs)
    return data.batch(batch_size, drop_remainder=True).prefetch(2)


with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(32, activation="relu", input_shape=(2,)), tf.keras.layers.Dense(2)]
    )
    optimizer = tf.keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    losses = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    right = tf.keras.metrics.SparseCategoricalAccuracy()


def replica_step(points, labels):
    """Train one replica on its part of a batch."""
    with tf.GradientTape() as tape:
        scores = model(points, training=True)
        loss = tf.nn.compute_average_loss(losses(labels, scores), global_batch_size=batch_size)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    right.update_state(labels, scores)


if isinstance(strategy, tf.distribute.experimental.ParameterServerStrategy):
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    worker_batches = iter(coordinator.create_per_worker_dataset(lambda: batches().repeat()))

    @tf.function
    def worker_step(iterator):
        """A step of one worker."""
        strategy.run(replica_step, next(iterator))

    for _ in tfdist.measure.steps(range(epochs * 128), examples=batch_size):
        coordinator.schedule(worker_step, args=(worker_batches,))
    coordinator.join()
else:

    @tf.function
    def step(batch):
        """A step of all replicas."""
        strategy.run(replica_step, batch)

    for batch in tfdist.measure.steps(strategy.experimental_distribute_dataset(batches()), examples=batch_size):
        step(batch)

print(f"accuracy {float(right.result()):.3f} with {strategy.num_replicas_in_sync} replicas in sync")
