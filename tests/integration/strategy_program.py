"""Small trainings, each as users write them: right, or with one mistake. `python strategy_program.py KIND [plain]`.

With `plain` nothing of the program calls tfdist.measure.
"""

import os
import sys

KIND, PLAIN = sys.argv[1], sys.argv[2:] == ["plain"]
if KIND == "keras3":
    os.environ["TF_USE_LEGACY_KERAS"] = "0"
if KIND == "ignores-tf-config":
    del os.environ["TF_CONFIG"]

import tensorflow as tf

import tfdist.measure
import tfdist.strategies


def data(batch, passes=None):
    """Batches of points and of which side of a curve they are on."""
    points = tf.random.stateless_uniform((512, 2), seed=(1, 2), minval=-1.0)
    labels = tf.cast(points[:, 1] > tf.sin(3.0 * points[:, 0]), tf.int32)
    return tf.data.Dataset.from_tensor_slices((points, labels)).repeat(passes).batch(batch, drop_remainder=True)


def classifier():
    """An untrained model."""
    return tf.keras.Sequential([tf.keras.layers.Dense(8, activation="relu"), tf.keras.layers.Dense(2)])


def own_cluster():
    """MultiWorkerMirroredStrategy from TF_CONFIG, without tfdist."""
    return tf.distribute.MultiWorkerMirroredStrategy()


def fit(strategy):
    """Train with Model.fit."""
    with strategy.scope():
        model = classifier()
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss)
    callbacks = [] if PLAIN else [tfdist.measure.Callback()]
    model.fit(data(16), epochs=tfdist.measure.epochs(1), steps_per_epoch=20, callbacks=callbacks, verbose=0)


def train():
    """Make the strategy in a function."""
    strategy = tfdist.strategies.current()
    fit(strategy)


def loop(strategy, distribute, examples):
    """Train with a loop; `distribute(global batch size)` makes its data, and `examples` is what it says of a step."""
    with strategy.scope():
        weights = tf.Variable(tf.zeros((2, 2)))
    batch = 16 * strategy.num_replicas_in_sync

    def replica_step(points, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.matmul(points, weights))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=batch)
        gradient = tape.gradient(loss, weights)
        total = tf.distribute.get_replica_context().all_reduce("sum", gradient)
        weights.assign_sub(0.1 * total)

    @tf.function
    def step(values):
        strategy.run(replica_step, values)

    batches = distribute(batch)
    for values in tfdist.measure.steps(batches, examples=examples(batch)):
        step(values)


if KIND in ("never-asks", "ignores-tf-config"):
    fit(tf.distribute.get_strategy())
elif KIND in ("fit", "keras3", "imported"):
    fit(tfdist.strategies.current())
elif KIND == "in-a-function":
    train()
elif KIND == "no-scope":
    tfdist.strategies.current()
    fit(tf.distribute.get_strategy())
elif KIND == "own-cluster":
    fit(own_cluster())
elif KIND == "second-strategy":
    tfdist.strategies.current()
    fit(tf.distribute.MirroredStrategy())
elif KIND == "too-late":
    tf.constant(1.0) + 1.0
    fit(tfdist.strategies.current())
else:
    strategy = tfdist.strategies.current()
    whole = strategy.experimental_distribute_dataset
    by_worker = strategy.distribute_datasets_from_function
    inputs, workers = {
        "loop": (lambda batch: whole(data(batch, 2)), lambda batch: batch),
        "sharded": (
            lambda batch: by_worker(
                lambda context: data(16, 2).shard(context.num_input_pipelines, context.input_pipeline_id)
            ),
            lambda batch: batch,
        ),
        "not-sharded": (lambda batch: by_worker(lambda context: data(16, 2)), lambda batch: batch),
        "global-batch": (lambda batch: by_worker(lambda context: data(batch, 2)), lambda batch: batch),
    }[KIND]
    loop(strategy, inputs, workers)
