"""The tiny model with BatchNorm, whose statistics each replica takes of its own batch: for trying what that breaks."""

import tensorflow as tf

from tfdist.models.spec import TrainingSpec


def build(spec: TrainingSpec) -> tf.keras.Model:
    """The model under whatever scope surrounds it: images of shape (batch, side, side, 3) in 0..1 -> float32 logits.

    `spec.alpha` scales its width (at 1: 16 and 32 channels).
    """
    layers = tf.keras.layers
    x = images = tf.keras.Input((spec.image_size, spec.image_size, 3))
    for channels, strides in ((16, 4), (32, 2)):
        x = layers.Conv2D(max(1, round(channels * spec.alpha)), 3, strides=strides, padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization(momentum=spec.bn_momentum)(x))
    x = layers.Dense(spec.classes)(layers.GlobalAveragePooling2D()(x))
    return tf.keras.Model(images, layers.Activation("linear", dtype="float32", name="logits")(x))
