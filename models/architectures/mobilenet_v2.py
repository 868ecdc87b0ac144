"""MobileNetV2 (https://arxiv.org/abs/1801.04381) from Keras, with random weights: nothing is downloaded."""

import tensorflow as tf

from tfdist.models.spec import TrainingSpec


def build(spec: TrainingSpec) -> tf.keras.Model:
    """The model in the current strategy scope: images of shape (batch, side, side, 3) in 0..1 -> float32 logits.

    Its BatchNorm layers use `spec.bn_momentum`. With Keras' 0.999 the moving statistics lag behind in a short training,
    and the model is accurate on its training batches only.
    """
    shape = (spec.image_size, spec.image_size, 3)
    body = tf.keras.applications.MobileNetV2(
        input_shape=shape, alpha=spec.alpha, weights=None, classes=spec.classes, classifier_activation=None
    )
    for layer in body.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            layer.momentum = spec.bn_momentum
    logits = tf.keras.layers.Activation("linear", dtype="float32", name="logits")(body.output)
    return tf.keras.Model(body.input, logits)
