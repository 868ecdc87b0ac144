"""The batches of a strategy's replicas."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.datasets import pipeline, synthetic, table
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG, Exchange


@dataclass(frozen=True)
class Feed:
    """A source of batches: pass `source` to the step's tf.function, which calls `draw` on it."""

    source: Any
    draw: Callable[[Any], Any]
    """From the source to one batch per replica."""


def share(spec: TrainingSpec, task: Task, replicas: int) -> pipeline.Share:
    """This task's part of the data, for its `replicas` replicas."""
    workers = spec.workers if CATALOG[spec.strategy].many_processes else 1
    return pipeline.Share(workers, task.index if workers > 1 else 0, replicas)


def batches(spec: TrainingSpec, part: pipeline.Share) -> tf.data.Dataset:
    """Endless batches of `spec.batch_size`, for the replicas of `part` in turn."""
    if spec.dataset == table.SYNTHETIC:
        return synthetic.batches(spec, part.worker * part.replicas, part.replicas)
    return pipeline.training(table.examples(spec.dataset, spec.data_dir), spec, part)


def worker_batches(spec: TrainingSpec, part: pipeline.Share) -> tf.data.Dataset:
    """As `batches`, with the batches of all replicas concatenated: Keras 3's fit splits them again."""
    per_replica = batches(spec, part)
    if part.replicas == 1:
        return per_replica

    def concatenated(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.reshape(images, (-1, *images.shape[2:])), tf.reshape(labels, (-1,))

    return per_replica.batch(part.replicas, drop_remainder=True).map(concatenated).prefetch(tf.data.AUTOTUNE)


def synchronous(spec: TrainingSpec, strategy: tf.distribute.Strategy, part: pipeline.Share) -> Feed:
    """The feed of synchronous strategies and of independent tasks."""
    if spec.dataset == table.SYNTHETIC:
        first = part.worker * part.replicas if CATALOG[spec.strategy].exchange is Exchange.NONE else 0
        values = strategy.experimental_distribute_values_from_function(
            lambda context: synthetic.batch(spec, first + context.replica_id_in_sync_group)
        )
        return Feed(values, lambda source: source)
    distributed = strategy.distribute_datasets_from_function(lambda context: batches(spec, part))
    return Feed(iter(distributed), next)


def asynchronous(spec: TrainingSpec, strategy: tf.distribute.Strategy, coordinator: Any, replicas: int) -> Feed:
    """The feed of parameter-server workers: an iterator on each worker."""
    arrivals = arrival_counter(strategy)

    def worker_dataset(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return batches(spec, arriving_share(spec, arrivals, replicas))

    per_worker = coordinator.create_per_worker_dataset(
        tf.function(lambda: strategy.distribute_datasets_from_function(worker_dataset))  # built on the worker
    )
    return Feed(iter(per_worker), next)


def arrival_counter(strategy: tf.distribute.Strategy) -> tf.Variable:
    """A variable on a parameter server with which workers number themselves."""
    with strategy.scope():
        return tf.Variable(0, dtype=tf.int64, trainable=False, name="arrivals")


def arriving_share(spec: TrainingSpec, arrivals: tf.Variable, replicas: int) -> pipeline.Share:
    """The share of the worker that runs this. Its dataset function does not know its index: it takes the next number.

    A restarted worker takes another number, and with it the share of another worker.
    """
    number = arrivals.assign_add(1, read_value=True) - 1
    return pipeline.Share(spec.workers, tf.cast(number % spec.workers, tf.int32), replicas)
