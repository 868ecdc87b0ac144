"""How a strategy's replicas get their batches."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.datasets import pipeline, synthetic, table
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG, StrategyName


@dataclass(frozen=True)
class Feed:
    """`draw(source)` is one batch a replica. `source` is handed to the tf.function of the step, which calls `draw`."""

    source: Any
    draw: Callable[[Any], Any]


def share(spec: TrainingSpec, task: Task, replicas: int) -> pipeline.Share:
    """This task's part of the data: worker `task.index` of all, with `replicas` replicas of its own."""
    workers = spec.workers if CATALOG[spec.strategy].many_processes else 1
    return pipeline.Share(workers, task.index if workers > 1 else 0, replicas)


def batches(spec: TrainingSpec, part: pipeline.Share) -> tf.data.Dataset:
    """Endless batches of `spec.batch_size`, for the replicas of `part` in turn."""
    if spec.dataset == table.SYNTHETIC:
        return synthetic.batches(spec, part.worker * part.replicas, part.replicas)
    return pipeline.training(table.examples(spec.dataset, spec.data_dir), spec, part)


def worker_batches(spec: TrainingSpec, part: pipeline.Share) -> tf.data.Dataset:
    """The same with the batches of all replicas of `part` in one, first replica first: Keras 3's fit splits them."""
    each = batches(spec, part)
    if part.replicas == 1:
        return each

    def joined(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.reshape(images, (-1, *images.shape[2:])), tf.reshape(labels, (-1,))

    return each.batch(part.replicas, drop_remainder=True).map(joined).prefetch(tf.data.AUTOTUNE)


def synchronous(spec: TrainingSpec, strategy: tf.distribute.Strategy, part: pipeline.Share) -> Feed:
    """The feed of every strategy whose replicas step together, and of each independent task."""
    if spec.dataset == table.SYNTHETIC:
        first = part.worker * part.replicas if spec.strategy is StrategyName.INDEPENDENT else 0
        made = strategy.experimental_distribute_values_from_function(
            lambda context: synthetic.batch(spec, first + context.replica_id_in_sync_group)
        )
        return Feed(made, lambda source: source)
    distributed = strategy.distribute_datasets_from_function(lambda context: batches(spec, part))
    return Feed(iter(distributed), next)


def asynchronous(spec: TrainingSpec, strategy: tf.distribute.Strategy, coordinator: Any, replicas: int) -> Feed:
    """The feed of the workers of a parameter-server job: an iterator on each worker, made there."""
    arrivals = arrival_counter(strategy)

    def own(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return batches(spec, arriving_share(spec, arrivals, replicas))

    made = coordinator.create_per_worker_dataset(
        tf.function(lambda: strategy.distribute_datasets_from_function(own))  # the dataset must be made inside
    )
    return Feed(iter(made), next)


def arrival_counter(strategy: tf.distribute.Strategy) -> tf.Variable:
    """A variable on a parameter server by which workers number themselves."""
    with strategy.scope():
        return tf.Variable(0, dtype=tf.int64, trainable=False, name="arrivals")


def arriving_share(spec: TrainingSpec, arrivals: tf.Variable, replicas: int) -> pipeline.Share:
    """The share of the worker that runs this: a dataset function is not told its worker, so each takes the next number.

    A worker that is restarted takes a number again, and with it somebody's share.
    """
    number = arrivals.assign_add(1, read_value=True) - 1
    return pipeline.Share(spec.workers, tf.cast(number % spec.workers, tf.int32), replicas)
