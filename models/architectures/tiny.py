"""A small convolutional network without BatchNorm, so that its loss does not depend on how a batch is split.

5,000 parameters at alpha 1 with 10 classes.
"""

import tensorflow as tf

from tfdist.models.spec import TrainingSpec


def build(spec: TrainingSpec) -> tf.keras.Model:
    """The model in the current strategy scope: images of shape (batch, side, side, 3) in 0..1 -> float32 logits.

    `spec.alpha` scales its width: 16 and 32 channels at 1.
    """
    layers = tf.keras.layers
    x = images = tf.keras.Input((spec.image_size, spec.image_size, 3))
    for channels, strides in ((16, 4), (32, 2)):
        filters = max(1, round(channels * spec.alpha))
        x = layers.Conv2D(filters, 3, strides=strides, padding="same", activation="relu")(x)
    x = layers.Dense(spec.classes)(layers.GlobalAveragePooling2D()(x))
    return tf.keras.Model(images, layers.Activation("linear", dtype="float32", name="logits")(x))
