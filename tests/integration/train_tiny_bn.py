"""The task of a training whose `tiny` model has BatchNorm, which fails with some strategies under Keras 3."""

import tensorflow as tf

from tfdist.models.architectures import tiny
from tfdist.models.spec import TrainingSpec
from tfdist.models.training import task
from tfdist.models.training.ending import leave


def build(spec: TrainingSpec) -> tf.keras.Model:
    layers = tf.keras.layers
    x = images = tf.keras.Input((spec.image_size, spec.image_size, 3))
    for channels, strides in ((16, 4), (32, 2)):
        x = layers.Conv2D(channels, 3, strides=strides, padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization(momentum=spec.bn_momentum)(x))
    x = layers.Dense(spec.classes)(layers.GlobalAveragePooling2D()(x))
    return tf.keras.Model(images, layers.Activation("linear", dtype="float32", name="logits")(x))


if __name__ == "__main__":
    tiny.build = build
    leave(task.main())
