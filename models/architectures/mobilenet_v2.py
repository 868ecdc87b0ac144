"""MobileNetV2 (https://arxiv.org/abs/1801.04381), from Keras, with weights from the seed and never from the network."""

import tensorflow as tf

from tfdist.models.spec import TrainingSpec


def build(spec: TrainingSpec) -> tf.keras.Model:
    """The model under whatever scope surrounds it: images of shape (batch, side, side, 3) in 0..1 -> float32 logits.

    Its BatchNorm layers get `spec.bn_momentum`: with Keras' 0.999 the moving statistics of a short training lag far
    behind, and the model is right on its training batches and wrong on everything else.
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
