"""A training loop that continues after a restart, under any strategy but parameter-server, also without a launcher.

    tfdist launch --strategy multiworker --workers 2 --checkpoint-dir ckpt --max-restarts 3 -- \\
        python examples/loop_restart.py

Kill a worker with `kill -9` while it trains. The folder must be the same on all hosts.
"""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow as tf

import tfdist.measure
import tfdist.strategies

STEPS, SAVE_EVERY = 2000, 100

folder = os.environ.get("TFDIST_CHECKPOINT_DIR") or os.environ.get("TFDIST_ARM_DIR", "ckpt")
attempt = os.environ.get("TFDIST_ATTEMPT", "0")  # counts the restarts
strategy = tfdist.strategies.current()
batch_size = 32 * strategy.num_replicas_in_sync  # global
points = tf.random.stateless_uniform((4096, 2), seed=(1, 2), minval=-1.0)
labels = tf.cast(points[:, 1] > tf.sin(3.0 * points[:, 0]), tf.int32)  # on which side of a curve they are


def batches(first):
    """Global batches from step `first` on. Their order depends on the seed alone, so no example is lost or repeated."""
    data = tf.data.Dataset.from_tensor_slices((points, labels)).shuffle(4096, seed=3).repeat()
    return data.batch(batch_size).take(STEPS).skip(first).prefetch(2)


tf.keras.utils.set_random_seed(4)
with strategy.scope():
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(32, activation="relu", input_shape=(2,)), tf.keras.layers.Dense(2)]
    )
    optimizer = tf.keras.optimizers.Adam(0.01)
    optimizer.build(model.trainable_variables)
    losses = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

# In a save, workers read each other's variables: all of them must take part, but only the first one's files are used.
worker = strategy.cluster_resolver.task_id if strategy.cluster_resolver else 0
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
manager = tf.train.CheckpointManager(checkpoint, f"{folder}/worker-{worker}" if worker else folder, max_to_keep=2)

latest = tf.train.latest_checkpoint(folder)
if latest:
    checkpoint.restore(latest)
first = int(optimizer.iterations.numpy())
print(f"attempt {attempt}: from step {first}")


@tf.function
def step(batch):
    """A step of all replicas."""

    def replica_step(points, labels):
        with tf.GradientTape() as tape:
            scores = model(points, training=True)
            loss = tf.nn.compute_average_loss(losses(labels, scores), global_batch_size=batch_size)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    strategy.run(replica_step, batch)


data = strategy.experimental_distribute_dataset(batches(first))
for number, batch in enumerate(tfdist.measure.steps(data, examples=batch_size, first=first), first + 1):
    step(batch)
    if number % SAVE_EVERY == 0:
        manager.save(checkpoint_number=number)

right = tf.argmax(model(points), axis=-1, output_type=tf.int32) == labels
print(f"attempt {attempt}: accuracy {float(tf.reduce_mean(tf.cast(right, tf.float32))):.4f} after step {STEPS}")
