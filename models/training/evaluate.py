"""Loss and accuracy on the held-out examples, computed the same way for every strategy."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tfdist.launch import events
from tfdist.launch.events import Phase
from tfdist.models.architectures.build import build as build_model
from tfdist.models.datasets import pipeline, table
from tfdist.models.training import agreement, feed
from tfdist.models.training.context import TrainingContext, TrainingState

REPORT_S = 10.0
"""Seconds between two reports that the evaluation continues."""


@dataclass(frozen=True)
class HeldOut:
    """What a model achieves on the held-out examples."""

    loss: float
    """Mean cross-entropy."""
    accuracy: float
    """The share, 0..1, that it classifies correctly."""


def held_out(job: TrainingContext) -> Callable[[TrainingState], HeldOut]:
    """A function that measures what has been trained so far; every worker of a synchronous job must call it.

    Each worker evaluates its part of the examples on a plain copy of the model, and the counts are summed. So workers
    do not wait for each other on parts of unequal size. Reading the weights averages BatchNorm's moving statistics
    over replicas where the strategy keeps one copy per replica. The copy is made once, so that later calls are fast.
    """
    model = build_model(job.spec)
    shapes = [tuple(weight.shape) for weight in model.weights]
    part = feed.share(job.spec, job.task, job.replicas) if job.workers > 1 else pipeline.Share()
    examples = pipeline.held_out(table.examples(job.spec.dataset, job.spec.data_dir), job.spec, part)
    count, total = counter(model), agreement.make_sum(job)

    def measure(trained: TrainingState) -> HeldOut:
        model.set_weights(join_shards(trained.evaluated_weights(), shapes))
        correct, number, loss = total(count(_reported(examples)))
        return HeldOut(loss / number, correct / number)

    return measure


def _reported(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches; reports now and then that the evaluation continues: a job without a step may count as stalled."""
    reported_at = time.monotonic()
    for batch in batches:
        if time.monotonic() - reported_at >= REPORT_S:
            reported_at = time.monotonic()
            events.emit("phase", phase=Phase.EVALUATING)
        yield batch


def counter(model: tf.keras.Model) -> Callable[[Iterable[Any]], tuple[float, float, float]]:
    """A function that counts the examples that the model classifies correctly and all examples, and sums their losses.

    The loss of an example is its cross-entropy.
    """
    per_example = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function(reduce_retracing=True)
    def sums(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        logits = model(images, training=False)
        predicted = tf.argmax(logits, axis=-1, output_type=labels.dtype)
        return tf.math.count_nonzero(predicted == labels), tf.reduce_sum(per_example(labels, logits))

    def count(examples: Iterable[Any]) -> tuple[float, float, float]:
        rows = [(*map(float, sums(images, labels)), float(labels.shape[0])) for images, labels in examples]
        correct, losses, sizes = zip(*rows, strict=True) if rows else ((), (), ())
        return sum(correct), sum(sizes), sum(losses)

    return count


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
