"""MobileNetV2 under tf.distribute, written as TensorFlow's tutorials do; prints the time at the end of the first step.

The argument is the strategy. TF_CONFIG has the cluster; under parameter-server its workers and ps serve until they are
ended. The model and the batches are those of `tfdist launch --preset cpu`.
https://www.tensorflow.org/tutorials/distribute/custom_training, parameter_server_training
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

SIDE, CLASSES, BATCH = 96, 1000, 16
DEVICES = 2
"""Virtual CPU devices of mirrored."""


def mirrored() -> tf.distribute.Strategy:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * DEVICES)
    return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(DEVICES)])


def parameter_server() -> tf.distribute.Strategy:
    """The chief's strategy; on a worker or ps it serves and never returns."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        cluster = resolver.cluster_spec()
        role = resolver.task_type
        index = resolver.task_id
        tf.distribute.Server(cluster, job_name=role, task_index=index, protocol="grpc").join()
    return tf.distribute.ParameterServerStrategy(resolver)


STRATEGIES: dict[str, Callable[[], tf.distribute.Strategy]] = {
    "one-device": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
    "mirrored": mirrored,
    "multiworker": tf.distribute.MultiWorkerMirroredStrategy,
    "parameter-server": parameter_server,
}


def batch(replica: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Random images and labels of one replica."""
    images = tf.random.stateless_uniform((BATCH, SIDE, SIDE, 3), (0, replica))
    return images, tf.random.stateless_uniform((BATCH,), (0, replica), maxval=CLASSES, dtype=tf.int32)


def step_of(strategy: tf.distribute.Strategy) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
    """One training step of all replicas, which returns the mean loss."""
    with strategy.scope():
        model = tf.keras.applications.MobileNetV2(
            input_shape=(SIDE, SIDE, 3), weights=None, classes=CLASSES, classifier_activation=None
        )
        optimizer = tf.keras.optimizers.legacy.Adam(learning_rate=0.001)
        loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def replica_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(loss_of(labels, model(images, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_step, (images, labels)), axis=None)

    return step


def train_on_workers(strategy: tf.distribute.Strategy, step: Callable[..., Any]) -> None:
    """Schedule one step for each worker, and wait for all."""
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    dataset = coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(batch(0)).repeat())
    batches = iter(dataset)
    worker_step = tf.function(lambda source: step(*next(source)))
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
    for _ in range(cluster.num_tasks("worker")):
        coordinator.schedule(worker_step, (batches,))
    coordinator.join()


def main() -> None:
    strategy = STRATEGIES[sys.argv[1]]()
    step = step_of(strategy)
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        train_on_workers(strategy, step)
    else:
        batches = strategy.experimental_distribute_values_from_function(
            lambda context: batch(context.replica_id_in_sync_group)
        )
        float(tf.function(step)(*batches))
    print(f"first step at {time.time()}", flush=True)


if __name__ == "__main__":
    main()
