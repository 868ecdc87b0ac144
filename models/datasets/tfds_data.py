"""tfds:NAME: a data set of TensorFlow Datasets that is already prepared. Nothing is downloaded."""

from typing import TYPE_CHECKING

from tfdist.models.datasets import prepared
from tfdist.models.datasets.info import DataInfo

if TYPE_CHECKING:
    import tensorflow as tf

    from tfdist.models.datasets.pipeline import Examples


def describe(name: str, data_dir: str | None) -> DataInfo:
    """The data set in `data_dir`, else in TFDS_DATA_DIR, else in ~/tensorflow_datasets.

    Raises:
        TfdistError: not prepared, or its examples are not an image and a label.
    """
    return prepared.find(name, data_dir).info


def examples(name: str, data_dir: str | None) -> "Examples":
    """The examples in the order of their files; images are decoded later."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    from tfdist.models.datasets.pipeline import Examples, decode_image

    dataset = prepared.find(name, data_dir)
    builder = tfds.builder_from_directory(str(dataset.folder))
    encoded = tfds.decode.PartialDecoding(
        {"image": True, "label": True}, decoders={"image": tfds.decode.SkipDecoding()}
    )

    def references(split: str) -> tf.data.Dataset:
        return builder.as_dataset(split=split, decoders=encoded, shuffle_files=False).map(_pair)

    return Examples(
        lambda: references(dataset.train),
        lambda: references(dataset.test),
        lambda image, label: (decode_image(image), label),
        dataset.train_examples,
    )


def _pair(example: "dict[str, tf.Tensor]") -> "tuple[tf.Tensor, tf.Tensor]":
    return example["image"], example["label"]
