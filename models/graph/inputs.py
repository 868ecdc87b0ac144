"""The batches of a replica, as tensors of a graph."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.models.datasets import pipeline, synthetic, table
from tfdist.models.graph import placement
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import feed

v1 = tf.compat.v1


@dataclass(frozen=True)
class Inputs:
    """Each run of a session takes the next batch."""

    images: tf.Tensor
    labels: tf.Tensor
    start: Callable[[Any, int], object]
    """Call it with the session and the number of the first example before the first step."""


def inputs(spec: TrainingSpec, replica: int) -> Inputs:
    """The batches of one of the replicas, on the current device: the same ones as under every other strategy."""
    if spec.dataset == table.SYNTHETIC:
        return _held([*synthetic.batch(spec, replica)])
    first = v1.placeholder(tf.int64, ())
    batches = feed.batches(spec, pipeline.Share(spec.workers, replica), first)
    iterator = v1.data.make_initializable_iterator(batches)
    images, labels = iterator.get_next()
    return Inputs(images, labels, lambda session, number: session.run(iterator.initializer, {first: number}))


def _held(batch: list[tf.Tensor]) -> Inputs:
    """Always this batch, from variables: as constants they would be computed again in each step."""
    held = [placement.untracked(value, "synthetic_batch") for value in batch]
    initialize = [variable.initializer for variable in held]
    images, labels = map(tf.identity, held)
    return Inputs(images, labels, lambda session, number: session.run(initialize))


def placeholders(spec: TrainingSpec) -> Inputs:
    """Tensors of the right shapes without data, for a graph whose steps this task does not run."""
    images = v1.placeholder(tf.float32, (spec.batch_size, spec.image_size, spec.image_size, 3))
    labels = v1.placeholder(tf.int32, (spec.batch_size,))
    return Inputs(images, labels, lambda session, number: None)
