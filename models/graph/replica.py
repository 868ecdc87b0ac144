"""A replica in the current graph: its batches, the loss and the gradients that it computes from them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.models.datasets import pipeline, synthetic, table
from tfdist.models.graph import placement
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import feed, straggler

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
        # from variables: as constants they would be computed again in each step
        batch = [placement.untracked(value, "synthetic_batch") for value in synthetic.batch(spec, replica)]
        initialize = [variable.initializer for variable in batch]
        images, labels = map(tf.identity, batch)
        return Inputs(images, labels, lambda session, number: session.run(initialize))
    first = v1.placeholder(tf.int64, ())
    batches = feed.batches(spec, pipeline.Share(spec.workers, replica), first)
    iterator = v1.data.make_initializable_iterator(batches)
    images, labels = iterator.get_next()
    return Inputs(images, labels, lambda session, number: session.run(iterator.initializer, {first: number}))


def placeholders(spec: TrainingSpec) -> Inputs:
    """Tensors of the right shapes without data, for a graph whose steps this task does not run."""
    images = v1.placeholder(tf.float32, (spec.batch_size, spec.image_size, spec.image_size, 3))
    labels = v1.placeholder(tf.int32, (spec.batch_size,))
    return Inputs(images, labels, lambda session, number: None)


@dataclass(frozen=True)
class Replica:
    """What a replica computes from its batch."""

    loss: tf.Tensor
    """Mean over its batch."""
    gradients: list[tf.Tensor]
    """Gradients of `model.trainable_weights`."""
    updates: list[tf.Operation]
    """Updates of BatchNorm's moving statistics."""


def replica(spec: TrainingSpec, model: Any, batch: Inputs, index: int) -> Replica:
    """The replica with this index. `model` was built in this graph; it can be that of other replicas, too."""
    images = batch.images
    if spec.slow_worker == index:
        start, images = straggler.start_time(spec, images, batch.labels)
    logits = model(images, training=True)
    per_example = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch.labels, logits=logits)
    loss = tf.reduce_mean(per_example)
    gradients = tf.gradients(loss, model.trainable_weights)
    if spec.slow_worker == index:
        gradients = straggler.delay(spec, start, gradients)
    # Keras puts them into no collection of the graph, and `model.updates` are also those of building it
    return Replica(loss, gradients, model.get_updates_for(images))
