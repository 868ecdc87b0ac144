"""The batches of a strategy's replicas."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.models.datasets import pipeline, synthetic, table
from tfdist.models.spec import TrainingSpec
from tfdist.models.training.context import TrainingContext
from tfdist.strategies import devices
from tfdist.strategies.catalog import CATALOG, Exchange

DatasetFn = Callable[[tf.distribute.InputContext], tf.data.Dataset]


@dataclass(frozen=True)
class Feed:
    """A source of batches: pass `source` to the step's tf.function, which calls `draw` on it."""

    source: Any
    draw: Callable[[Any], Any]
    """Draws one batch per replica from the source."""


def share(job: TrainingContext) -> pipeline.Share:
    """This task's part of the data, for its replicas."""
    workers = job.spec.workers if CATALOG[job.spec.strategy].many_processes else 1
    return pipeline.Share(workers, job.task.index if workers > 1 else 0, job.replicas)


def batches(spec: TrainingSpec, part: pipeline.Share, first: "int | tf.Tensor" = 0) -> tf.data.Dataset:
    """Endless batches of `spec.batch_size` from example `first` on, for the replicas of `part` in turn."""
    if spec.dataset == table.SYNTHETIC:
        return synthetic.batches(spec, part.worker * part.replicas, part.replicas)
    return pipeline.training(table.examples(spec.dataset, spec.data_dir), spec, part, first)


def worker_batches(spec: TrainingSpec, part: pipeline.Share, first: "int | tf.Tensor" = 0) -> tf.data.Dataset:
    """`batches`, with the batches of all replicas concatenated: Keras 3's fit splits them again."""
    per_replica = batches(spec, part, first)
    if part.replicas == 1:
        return per_replica

    def concatenated(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.reshape(images, (-1, *images.shape[2:])), tf.reshape(labels, (-1,))

    return per_replica.batch(part.replicas, drop_remainder=True).map(concatenated).prefetch(tf.data.AUTOTUNE)


def synchronous(job: TrainingContext) -> Feed:
    """The feed of synchronous strategies and of independent tasks. Batches lie on the device of their replica.

    A tf.data iterator is one batch ahead on each device: TensorFlow's default for every strategy
    (`InputOptions.experimental_fetch_to_device`), and CentralStorageStrategy accepts no InputOptions.
    """
    spec = job.spec
    part = share(job)
    first = job.start.examples
    if spec.dataset == table.SYNTHETIC:
        replica = part.worker * part.replicas if CATALOG[spec.strategy].exchange is Exchange.NONE else 0
        return Feed(_on_devices(job, replica), lambda source: source)
    distributed = job.strategy.distribute_datasets_from_function(lambda context: batches(spec, part, first))
    return Feed(iter(distributed), next)


def _on_devices(job: TrainingContext, first: int) -> Any:
    """A synthetic batch for each replica of this task, on its device: without tf.device all would be on the first one,
    and copied from there in every step."""
    names = devices.of_replicas(job.strategy)

    def value(context: tf.distribute.experimental.ValueContext) -> tuple[tf.Tensor, tf.Tensor]:
        replica = context.replica_id_in_sync_group
        with tf.device("CPU:0"):  # a TPU's random generator is another one
            images, labels = synthetic.batch(job.spec, first + replica)
        with tf.device(names[replica % len(names)]):
            return tf.identity(images), tf.identity(labels)

    return job.strategy.experimental_distribute_values_from_function(value)


def asynchronous(job: TrainingContext, coordinator: Any, position: Callable[[], tf.Tensor]) -> Feed:
    """The feed of parameter-server workers: an iterator on each worker. `position`: see `worker_dataset_fn`."""
    dataset_fn = worker_dataset_fn(job, position)
    per_worker = coordinator.create_per_worker_dataset(  # the function builds the dataset on the worker
        tf.function(lambda: job.strategy.distribute_datasets_from_function(dataset_fn))
    )
    return Feed(iter(per_worker), next)


def worker_dataset_fn(job: TrainingContext, position: Callable[[], tf.Tensor]) -> DatasetFn:
    """A dataset function for parameter-server workers. It does not know its worker, so each call takes the next share.

    A restarted worker takes another share, which is also that of another worker. `position` reads the number of
    examples that all workers have trained, at which the data of a worker starts.
    """
    with job.strategy.scope():
        arrivals = tf.Variable(0, dtype=tf.int64, trainable=False, name="arrivals")  # on a parameter server

    def dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        number = arrivals.assign_add(1, read_value=True) - 1
        part = pipeline.Share(job.spec.workers, tf.cast(number % job.spec.workers, tf.int32), job.replicas)
        return batches(job.spec, part, position())

    return dataset
