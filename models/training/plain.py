"""The model without a strategy, with the weights of a checkpoint that any strategy has written."""

import tensorflow as tf

from tfdist.models.architectures.build import build as build_model
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import moving_averages
from tfdist.strategies.options import Precision


def build_plain(spec: TrainingSpec, precision: Precision) -> tf.keras.Model:
    """A model with random weights. They are float32 whatever the precision of its computations is."""
    tf.keras.mixed_precision.set_global_policy(precision.value)  # Keras 3 does not accept an enum
    return build_model(spec)


def load_weights(model: tf.keras.Model, prefix: str) -> None:
    """Read the model's weights from the checkpoint with this path, without the ending; optimizers are ignored.

    If it has moving averages of the trainable weights, they are read instead.

    TensorFlow joins the shards of partitioned variables, and saves one value for a variable with several replicas.

    Raises:
        tf.errors.OpError: it cannot be read, or is damaged.
        AssertionError, ValueError: it is a checkpoint of another model.
    """
    status = tf.train.Checkpoint(model=model).read(prefix)
    status.assert_existing_objects_matched().expect_partial()
    averages = moving_averages.saved(prefix)
    if averages:
        moving_averages.assign(model.trainable_variables, averages)
