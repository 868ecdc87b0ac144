"""1,797 handwritten digits of 8x8 pixels, shipped with tfdist (see digits/README): real data without a network."""

from functools import partial
from pathlib import Path

from tfdist.models.datasets.table import DataInfo, Examples

_FILE = Path(__file__).parent / "digits" / "digits.npz"
_TRAIN, _TEST, _CLASSES = 1438, 359, 10
_HELD_OUT_EVERY = 5


def describe(name: str, data_dir: str | None) -> DataInfo:
    """Ten classes; every fifth digit is held out. `name` and `data_dir` are unused."""
    return DataInfo(_CLASSES, _TRAIN, _TEST)


def examples(name: str, data_dir: str | None) -> Examples:
    """The digits at 8x8 pixels; the pipeline resizes them."""
    import numpy as np
    import tensorflow as tf

    with np.load(_FILE) as arrays:
        images, labels = arrays["images"], arrays["labels"]

    held_out = np.arange(len(labels)) % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1

    def part(chosen: np.ndarray) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((images[chosen], labels[chosen]))

    def decode(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        grey = tf.cast(image, tf.float32)[..., tf.newaxis] / 16.0  # white
        return tf.image.grayscale_to_rgb(grey), label

    return Examples(partial(part, ~held_out), partial(part, held_out), decode, _TRAIN)
