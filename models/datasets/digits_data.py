"""1,797 handwritten digits of 8x8 pixels, shipped with tfdist (see digits/README): real data that needs no network."""

from pathlib import Path
from typing import TYPE_CHECKING

from tfdist.models.datasets.info import DataInfo

if TYPE_CHECKING:
    from tfdist.models.datasets.pipeline import Examples

_FILE = Path(__file__).parent / "digits" / "digits.npz"
_TRAIN, _TEST, _CLASSES = 1438, 359, 10
_EVERY = 5
"""Every fifth digit, from the fifth on, is held out."""
_WHITE = 16.0


def describe(name: str, data_dir: str | None) -> DataInfo:
    """Ten classes; every fifth digit is held out. `name` and `data_dir` are not needed."""
    return DataInfo(_CLASSES, _TRAIN, _TEST)


def examples(name: str, data_dir: str | None) -> "Examples":
    """The digits, from memory; scaling them up is left to the pipeline."""
    import numpy as np
    import tensorflow as tf

    from tfdist.models.datasets.pipeline import Examples

    with np.load(_FILE) as arrays:
        images, labels = arrays["images"], arrays["labels"]

    held_out = np.arange(len(labels)) % _EVERY == _EVERY - 1

    def part(chosen: np.ndarray) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((images[chosen], labels[chosen]))

    def decode(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        grey = tf.cast(image, tf.float32)[..., tf.newaxis] / _WHITE
        return tf.image.grayscale_to_rgb(grey), label

    return Examples(lambda: part(~held_out), lambda: part(held_out), decode, _TRAIN)
