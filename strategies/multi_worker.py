"""tf.distribute.MultiWorkerMirroredStrategy: one process a worker, gradients all-reduced over the network."""

from typing import Any

import tensorflow as tf

from tfdist.models.spec import TrainingSpec


def communication_options(spec: TrainingSpec) -> Any:
    """tf.distribute.experimental.CommunicationOptions as the spec says; what it leaves open is TensorFlow's default."""
    return tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=spec.bytes_per_pack or 0,
        timeout_seconds=spec.timeout_collective_s,
        implementation=tf.distribute.experimental.CommunicationImplementation[spec.communication.name],
    )


def build(spec: TrainingSpec) -> tf.distribute.Strategy:
    """The strategy of this worker in the cluster of TF_CONFIG; it blocks until all workers are there."""
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication_options(spec))
