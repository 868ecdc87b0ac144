"""Accuracy on the held-out examples, the same way after every strategy."""

import tensorflow as tf

from tfdist.models.architectures import table as architectures
from tfdist.models.datasets import pipeline, table
from tfdist.models.training import feed
from tfdist.models.training.context import TrainingContext, TrainingResult


def accuracy(job: TrainingContext, trained: TrainingResult) -> float:
    """The part of all held-out examples, 0..1, whose label the model finds.

    Each worker takes its share of the examples to a plain copy of the model on its own device, and the counts are
    summed: no rank can wait for another within a data set of uneven shares. Reading the weights makes BatchNorm's
    moving statistics agree across replicas, where the strategy keeps one for each.
    """
    model = _plain_copy(job, trained.model)
    part = feed.share(job.spec, job.task, job.replicas) if job.workers > 1 else pipeline.Share()
    examples = pipeline.held_out(table.examples(job.spec.dataset, job.spec.data_dir), job.spec, part)
    right, seen = _count(model, examples)
    if job.workers > 1:
        right, seen = _summed(job, right), _summed(job, seen)
    return right / seen


def _plain_copy(job: TrainingContext, model: tf.keras.Model) -> tf.keras.Model:
    weights = model.get_weights()
    copy = architectures.build(job.spec)
    copy.set_weights(weights)
    return copy


def _count(model: tf.keras.Model, examples: tf.data.Dataset) -> tuple[float, float]:
    @tf.function(reduce_retracing=True)
    def right(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        found = tf.argmax(model(images, training=False), axis=-1, output_type=labels.dtype)
        return tf.math.count_nonzero(found == labels)

    counts = [(int(right(images, labels)), int(labels.shape[0])) for images, labels in examples]
    return float(sum(count for count, _ in counts)), float(sum(size for _, size in counts))


def _summed(job: TrainingContext, value: float) -> float:
    total = tf.function(
        lambda number: job.strategy.reduce(
            tf.distribute.ReduceOp.SUM, job.strategy.run(lambda n: n / job.replicas, (number,)), axis=None
        )
    )
    return float(total(tf.constant(value)))
