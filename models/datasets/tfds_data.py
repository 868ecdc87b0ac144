"""tfds:NAME, a data set of TensorFlow Datasets that was prepared beforehand. Nothing is ever downloaded here."""

from typing import TYPE_CHECKING

from tfdist.models.datasets import prepared
from tfdist.models.datasets.info import DataInfo

if TYPE_CHECKING:
    from tfdist.models.datasets.pipeline import Examples


def describe(name: str, data_dir: str | None) -> DataInfo:
    """What lies prepared in `data_dir`, else in TFDS_DATA_DIR, else in ~/tensorflow_datasets.

    Raises:
        TfdistError: it is not prepared, or is not made of an image and a label.
    """
    return prepared.find(name, data_dir).info


def examples(name: str, data_dir: str | None) -> "Examples":
    """The examples in the order of their files, their images still encoded."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    from tfdist.models.datasets.pipeline import Examples, decode_image

    found = prepared.find(name, data_dir)
    builder = tfds.builder_from_directory(str(found.folder))
    encoded = tfds.decode.PartialDecoding(
        {"image": True, "label": True}, decoders={"image": tfds.decode.SkipDecoding()}
    )

    def references(split: str) -> tf.data.Dataset:
        return builder.as_dataset(split=split, decoders=encoded, shuffle_files=False).map(_pair)

    return Examples(
        lambda: references(found.train),
        lambda: references(found.test),
        lambda image, label: (decode_image(image), label),
        found.train_examples,
    )


def _pair(example: "dict[str, tf.Tensor]") -> "tuple[tf.Tensor, tf.Tensor]":
    return example["image"], example["label"]


if TYPE_CHECKING:
    import tensorflow as tf
