"""Random images and labels, generated once per replica: measures training without the cost of input."""

from typing import TYPE_CHECKING

from tfdist.models.datasets.table import DataInfo

if TYPE_CHECKING:
    import tensorflow as tf

    from tfdist.models.spec import TrainingSpec


def describe(name: str, data_dir: str | None) -> DataInfo:
    """Any number of classes and examples; none is held out."""
    return DataInfo(None, None, 0)


def batch(spec: "TrainingSpec", replica: "int | tf.Tensor") -> "tuple[tf.Tensor, tf.Tensor]":
    """The one batch of global replica `replica`: images (float32, 0..1) and labels (int32).

    It depends only on the seed and the replica's index, so it is the same under every strategy.
    """
    import tensorflow as tf

    seed = tf.stack([tf.constant(spec.seed, tf.int64), tf.cast(replica, tf.int64)])
    shape = (spec.batch_size, spec.image_size, spec.image_size, 3)
    images = tf.random.stateless_uniform(shape, seed)
    labels = tf.random.stateless_uniform(shape[:1], seed, maxval=spec.classes, dtype=tf.int32)
    return images, labels


def batches(spec: "TrainingSpec", first: "int | tf.Tensor", replicas: int) -> "tf.data.Dataset":
    """The batches of `replicas` replicas from `first` on, in turn, repeated forever."""
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensors(batch(spec, first))
    for replica in range(1, replicas):
        dataset = dataset.concatenate(tf.data.Dataset.from_tensors(batch(spec, first + replica)))
    return dataset.cache().repeat()
