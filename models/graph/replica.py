"""The model and the gradients of one replica, in the current graph."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tfdist.models.graph.inputs import Inputs
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import straggler


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
        start, images = straggler.started(spec, images, batch.labels)
    logits = model(images, training=True)
    per_example = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch.labels, logits=logits)
    loss = tf.reduce_mean(per_example)
    gradients = tf.gradients(loss, model.trainable_weights)
    if spec.slow_worker == index:
        gradients = straggler.slowed(spec, start, gradients)
    # Keras puts them into no collection of the graph, and `model.updates` are also those of building it
    return Replica(loss, gradients, model.get_updates_for(images))
