"""From cheap references to examples (indices, paths, encoded bytes) to this worker's batches."""

from collections.abc import Callable
from dataclasses import dataclass

import tensorflow as tf

from tfdist.models.spec import TrainingSpec

Decode = Callable[..., tuple[tf.Tensor, tf.Tensor]]
"""From one reference to (image of any size, 0..1, 3 channels; label)."""


@dataclass(frozen=True)
class Share:
    """Which part of every global batch a worker reads. `worker` may be a tensor that only the worker itself knows."""

    workers: int = 1
    worker: "int | tf.Tensor" = 0
    replicas: int = 1
    """Of this worker."""


@dataclass(frozen=True)
class Examples:
    """A data set as its references and the way to decode one."""

    train: Callable[[], tf.data.Dataset]
    test: Callable[[], tf.data.Dataset]
    decode: Decode
    size: int
    """Training examples: what an epoch's shuffle can spread over."""


def training(examples: Examples, spec: TrainingSpec, share: Share) -> tf.data.Dataset:
    """Endless batches of `spec.batch_size` images (float32, 0..1) and labels (int32), for its replicas in turn.

    All workers shuffle the same references in the same order, cut them into global batches of one block a replica, and
    decode only their own blocks: replica r of R gets the same examples whether it is a device or a worker.
    """
    block = spec.batch_size * share.replicas
    start = share.worker * block
    order = examples.train()
    if spec.shuffle > 1:
        order = order.shuffle(min(spec.shuffle, examples.size), seed=spec.seed, reshuffle_each_iteration=True)
    order = order.repeat().batch(block * share.workers, drop_remainder=True)
    own = order.map(lambda *parts: tuple(part[start : start + block] for part in parts))
    return (
        _decoded(own.unbatch(), examples.decode, spec).batch(spec.batch_size, drop_remainder=True).prefetch(_AUTOTUNE)
    )


def held_out(examples: Examples, spec: TrainingSpec, share: Share) -> tf.data.Dataset:
    """This worker's part of the held-out examples, once, in batches of `spec.batch_size`; the last may be smaller."""
    own = examples.test().shard(share.workers, share.worker)
    return _decoded(own, examples.decode, spec).batch(spec.batch_size).prefetch(_AUTOTUNE)


_AUTOTUNE = tf.data.AUTOTUNE


def _decoded(references: tf.data.Dataset, decode: Decode, spec: TrainingSpec) -> tf.data.Dataset:
    side = spec.image_size

    def example(*reference: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image, label = decode(*reference)
        return tf.ensure_shape(tf.image.resize(image, (side, side)), (side, side, 3)), tf.cast(label, tf.int32)

    return references.map(example, num_parallel_calls=_AUTOTUNE, deterministic=True)


def decode_image(encoded: tf.Tensor) -> tf.Tensor:
    """A jpg, png, bmp or gif (its first frame) as float32 of shape (height, width, 3), 0..1."""
    image = tf.io.decode_image(encoded, channels=3, dtype=tf.float32, expand_animations=False)
    return tf.ensure_shape(image, (None, None, 3))
