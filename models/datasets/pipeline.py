"""Makes the batches of a worker from the cheap references of a data set."""

from dataclasses import dataclass

import tensorflow as tf

from tfdist.models.datasets.table import Examples
from tfdist.models.spec import TrainingSpec


@dataclass(frozen=True)
class Share:
    """The part of every global batch that one worker reads. `worker` may be a tensor, evaluated on that worker."""

    workers: int = 1
    worker: "int | tf.Tensor" = 0
    replicas: int = 1
    """Replicas of this worker."""


def training(examples: Examples, spec: TrainingSpec, share: Share, first: "int | tf.Tensor" = 0) -> tf.data.Dataset:
    """Endless batches of `spec.batch_size` images (float32, 0..1) and labels (int32), for its replicas in turn.

    All workers shuffle the same references in the same order, split them into global batches of one block per replica,
    and decode only their blocks: replica r of R gets the same examples whether it is a device or a worker. The order
    depends on the seed alone, so that a training continues at example `first`, with any number of workers.
    """
    block = spec.batch_size * share.replicas
    start = share.worker * block
    order = _order(examples, spec, tf.cast(first, tf.int64)).batch(block * share.workers, drop_remainder=True)
    blocks = order.map(lambda *parts: tuple(part[start : start + block] for part in parts))
    decoded = _decoded(blocks.unbatch(), examples, spec)
    # They never end anyway, but only after `repeat` TensorFlow knows it: else workers ask each other before each batch.
    return decoded.batch(spec.batch_size, drop_remainder=True).repeat().prefetch(tf.data.AUTOTUNE)


def _order(examples: Examples, spec: TrainingSpec, first: tf.Tensor) -> tf.data.Dataset:
    """Endless references from example `first` on, in an order of its own for each epoch; past epochs are not read."""

    @tf.autograph.experimental.do_not_convert  # it warns about functions of a data set that it cannot convert
    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        references = examples.train()
        if spec.shuffle == 1:
            return references
        return _shuffled(references, min(spec.shuffle, examples.size), spec.seed, number + 1)

    return tf.data.Dataset.range(first // examples.size, tf.int64.max).flat_map(epoch).skip(first % examples.size)


def _shuffled(dataset: tf.data.Dataset, buffer: int, seed: int, seed2: tf.Tensor) -> tf.data.Dataset:
    """The dataset in an order that depends on the two seeds, which must not both be 0.

    `Dataset.shuffle` takes no tensor as a seed if the global seed is 0.
    """
    specs = tf.nest.flatten(dataset.element_spec)
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=buffer,
        seed=seed,
        seed2=seed2,
        output_types=[spec.dtype for spec in specs],
        output_shapes=[spec.shape for spec in specs],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


def held_out(examples: Examples, spec: TrainingSpec, share: Share) -> tf.data.Dataset:
    """This worker's part of the held-out examples, once, in batches of `spec.batch_size`; the last may be smaller."""
    part = examples.test().shard(share.workers, share.worker)
    return _decoded(part, examples, spec).batch(spec.batch_size).prefetch(tf.data.AUTOTUNE)


def _decoded(references: tf.data.Dataset, examples: Examples, spec: TrainingSpec) -> tf.data.Dataset:
    side, decode = spec.image_size, examples.decode

    def example(*reference: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image, label = decode(*reference)
        return tf.ensure_shape(tf.image.resize(image, (side, side)), (side, side, 3)), tf.cast(label, tf.int32)

    return references.map(example, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def decode_image(encoded: tf.Tensor) -> tf.Tensor:
    """A jpg, png, bmp or gif (first frame) as float32 of shape (height, width, 3), 0..1."""
    image = tf.io.decode_image(encoded, channels=3, dtype=tf.float32, expand_animations=False)
    return tf.ensure_shape(image, (None, None, 3))
