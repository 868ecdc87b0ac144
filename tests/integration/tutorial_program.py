"""Trainings of the shapes that TensorFlow's tutorials on distribution have, on made-up images, with the edits that
docs/convert.md names. `python tutorial_program.py SHAPE`.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

import tensorflow as tf

import tfdist

strategy = tfdist.strategies.current()
FOLDER = Path(os.environ.get("TFDIST_ARM_DIR", "."))
TASK = os.environ.get("TFDIST_TASK", "worker-0")
BATCH = 16 * strategy.num_replicas_in_sync
EPOCHS = 3


def examples():
    """96 images of 8x8 and their labels."""
    images = tf.random.stateless_uniform((96, 8, 8, 1), seed=(1, 2))
    return tf.data.Dataset.from_tensor_slices((images, tf.cast(tf.reduce_mean(images, axis=(1, 2, 3)) > 0.5, tf.int32)))


def classifier():
    """A small convolutional model."""
    return tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(4, 3, activation="relu", input_shape=(8, 8, 1)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(2),
        ]
    )


def compiled(**options):
    """The model with its optimizer, loss and accuracy."""
    model = classifier()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.Adam(), loss, metrics=["accuracy"], **options)
    return model


class PrintRate(tf.keras.callbacks.Callback):
    """Prints the learning rate of each epoch."""

    def on_epoch_end(self, epoch, logs=None):
        print(f"learning rate of epoch {epoch + 1}: {self.model.optimizer.learning_rate.numpy():g}")


def keras():
    """Fit with checkpoints and a schedule, evaluated and saved at the end."""
    train, test = examples().cache().shuffle(96).batch(BATCH), examples().batch(BATCH)
    with strategy.scope():
        model = compiled()
    callbacks = [
        tf.keras.callbacks.ModelCheckpoint(str(FOLDER / TASK / "ckpt_{epoch}"), save_weights_only=True),
        tf.keras.callbacks.LearningRateScheduler(lambda epoch: 1e-3 if epoch < 2 else 1e-4),
        PrintRate(),
        tfdist.measure.Callback(),
    ]
    model.fit(train, epochs=tfdist.measure.epochs(EPOCHS), callbacks=callbacks, validation_data=test, verbose=0)
    model.load_weights(tf.train.latest_checkpoint(FOLDER / TASK))
    loss, _ = model.evaluate(test, verbose=0)
    model.save(FOLDER / TASK / "model.keras")
    print(f"trained: {loss:.3f}")


def loop():
    """Steps under strategy.run, epochs with a mean loss and a test, and a checkpoint after every second epoch."""
    train = strategy.experimental_distribute_dataset(examples().shuffle(96).batch(BATCH))
    test = strategy.experimental_distribute_dataset(examples().batch(BATCH))
    with strategy.scope():
        objects = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
        model, optimizer = classifier(), tf.keras.optimizers.Adam()
        checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)

    def train_step(inputs):
        images, labels = inputs
        with tf.GradientTape() as tape:
            losses = objects(labels, model(images, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def distributed_train_step(inputs):
        return strategy.reduce("SUM", strategy.run(train_step, (inputs,)), axis=None)

    @tf.function
    def distributed_test_step(inputs):
        strategy.run(lambda values: accuracy.update_state(values[1], model(values[0], training=False)), (inputs,))

    for epoch in range(EPOCHS):
        total_loss, batches = 0.0, 0
        for inputs in tfdist.measure.steps(train, examples=BATCH):
            total_loss += distributed_train_step(inputs)
            batches += 1
        for inputs in test:
            distributed_test_step(inputs)
        if epoch % 2 == 0:
            checkpoint.save(str(FOLDER / TASK / "ckpt"))
        print(f"epoch {epoch + 1}: loss {total_loss / batches:.3f}, accuracy {accuracy.result():.3f}")
        accuracy.reset_state()
    print("trained")


def worker_fit():
    """Fit of several workers from one data set that TensorFlow shards, with a backup and a model of the chief."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    train = examples().shuffle(96).repeat().batch(BATCH).with_options(options)
    with strategy.scope():
        model = compiled()
    folder = FOLDER / ("" if TASK == "worker-0" else TASK)
    folder.mkdir(parents=True, exist_ok=True)
    callbacks = [tf.keras.callbacks.BackupAndRestore(str(FOLDER / "backup")), tfdist.measure.Callback()]
    model.fit(train, epochs=tfdist.measure.epochs(EPOCHS), steps_per_epoch=6, callbacks=callbacks, verbose=0)
    model.save(folder / "model.keras")
    print("trained")


def worker_loop():
    """A loop of several workers, which shard the data themselves and write to folders of their own."""

    def data(context):
        batches = examples().shuffle(96, seed=1).repeat()
        batches = batches.shard(context.num_input_pipelines, context.input_pipeline_id)
        return batches.batch(context.get_per_replica_batch_size(BATCH)).prefetch(2)

    train = strategy.distribute_datasets_from_function(data)
    with strategy.scope():
        model, optimizer = classifier(), tf.keras.optimizers.RMSprop(0.001)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    losses = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function
    def train_step(inputs):
        def step(values):
            images, labels = values
            with tf.GradientTape() as tape:
                predictions = model(images, training=True)
                loss = tf.nn.compute_average_loss(losses(labels, predictions), global_batch_size=BATCH)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            accuracy.update_state(labels, predictions)
            return loss

        return strategy.reduce("SUM", strategy.run(step, args=(inputs,)), axis=None)

    epoch, step_in_epoch = tf.Variable(0), tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, epoch=epoch, step_in_epoch=step_in_epoch)
    manager = tf.train.CheckpointManager(checkpoint, str(FOLDER / TASK), max_to_keep=1)
    for inputs in tfdist.measure.steps(train, examples=BATCH):
        train_step(inputs)
        step_in_epoch.assign_add(1)
        if step_in_epoch == 6:
            manager.save()
            print(f"epoch {int(epoch) + 1}: accuracy {accuracy.result():.3f}")
            epoch.assign_add(1)
            step_in_epoch.assign(0)
            if epoch == EPOCHS and "TFDIST_TURNS" not in os.environ:
                break
    print("trained")


def server_fit():
    """Fit under parameter servers, with a data set that each worker makes."""
    with strategy.scope():
        model = compiled(steps_per_execution=2)
    creator = tf.keras.utils.experimental.DatasetCreator(lambda context: examples().shuffle(96).repeat().batch(16))
    callbacks = [
        tf.keras.callbacks.ModelCheckpoint(str(FOLDER / "ckpt"), save_weights_only=True),
        tfdist.measure.Callback(),
    ]
    model.fit(creator, epochs=tfdist.measure.epochs(EPOCHS), steps_per_epoch=6, callbacks=callbacks, verbose=0)
    print("trained")


def server_loop():
    """A loop that schedules steps on the workers of parameter servers."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model, optimizer = classifier(), tf.keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()

    @tf.function
    def step(iterator):
        def replica(values):
            images, labels = values
            with tf.GradientTape() as tape:
                predictions = model(images, training=True)
                losses = tf.keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)
                loss = tf.nn.compute_average_loss(losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            accuracy.update_state(labels, predictions)
            return loss

        return strategy.reduce("SUM", strategy.run(replica, args=(next(iterator),)), axis=None)

    @tf.function
    def data():
        return strategy.distribute_datasets_from_function(lambda _: examples().shuffle(96).repeat().batch(16))

    iterator = iter(coordinator.create_per_worker_dataset(data))
    for epoch in range(EPOCHS):
        accuracy.reset_state()
        for _ in tfdist.measure.steps(range(6), examples=16):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        print(f"epoch {epoch + 1}: accuracy {accuracy.result():.3f}")
    print("trained")


{
    "keras": keras,
    "loop": loop,
    "worker-fit": worker_fit,
    "worker-loop": worker_loop,
    "server-fit": server_fit,
    "server-loop": server_loop,
}[sys.argv[1]]()
