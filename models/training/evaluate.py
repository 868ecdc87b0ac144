"""Accuracy on the held-out examples, computed the same way for every strategy."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.launch import events
from tfdist.launch.events import Phase
from tfdist.models.architectures.build import build as build_model
from tfdist.models.datasets import pipeline, table
from tfdist.models.training import agreement, feed
from tfdist.models.training.context import Trained, TrainingContext

REPORT_S = 10.0
"""Between two reports that the evaluation continues."""


def accuracy(job: TrainingContext, trained: Trained) -> float:
    """The share of held-out examples, 0..1, that the model classifies correctly.

    Each worker evaluates its part of the examples on a plain copy of the model, and the counts are summed. So workers
    do not wait for each other on parts of unequal size. Reading the weights averages BatchNorm's moving statistics
    over replicas where the strategy keeps one copy per replica.
    """
    model = _plain_copy(job, trained.model)
    part = feed.share(job.spec, job.task, job.replicas) if job.workers > 1 else pipeline.Share()
    examples = pipeline.held_out(table.examples(job.spec.dataset, job.spec.data_dir), job.spec, part)
    correct, total = agreement.make_sum(job)(counter(model)(_reported(examples)))
    return correct / total


def _reported(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches; reports now and then that the evaluation continues: a job without a step may count as stalled."""
    reported_at = time.monotonic()
    for batch in batches:
        if time.monotonic() - reported_at >= REPORT_S:
            reported_at = time.monotonic()
            events.emit("phase", phase=Phase.EVALUATING)
        yield batch


def counter(model: tf.keras.Model) -> Callable[[Iterable[Any]], tuple[float, float]]:
    """A function that counts the examples that the model classifies correctly, and all examples."""

    @tf.function(reduce_retracing=True)
    def correct(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        predicted = tf.argmax(model(images, training=False), axis=-1, output_type=labels.dtype)
        return tf.math.count_nonzero(predicted == labels)

    def count(examples: Iterable[Any]) -> tuple[float, float]:
        counts = [(int(correct(images, labels)), int(labels.shape[0])) for images, labels in examples]
        return float(sum(count for count, _ in counts)), float(sum(size for _, size in counts))

    return count


def _plain_copy(job: TrainingContext, model: tf.keras.Model) -> tf.keras.Model:
    weights = model.get_weights()
    copy = build_model(job.spec)
    copy.set_weights(join_shards(weights, [tuple(weight.shape) for weight in copy.weights]))
    return copy


def join_shards(parts: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """Weights of these shapes from NumPy arrays: each whole, or as its consecutive shards along the first axis.

    get_weights() returns the shards of variables that a partitioner of ParameterServerStrategy has divided.
    """
    left, weights = list(parts), []
    for shape in shapes:
        weight = left.pop(0)
        while weight.shape != shape:
            weight = np.concatenate([weight, left.pop(0)])
        weights.append(weight)
    return weights
