"""Folders that TensorFlow reads: local ones, gs://, s3:// and others."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

Read = TypeVar("Read")


class GFiles:
    """Reads folders through tf.io.gfile. See `checkpoints.Files`."""

    def names(self, folder: str) -> Sequence[str]:
        """`Files.names`."""
        try:
            return [name.rstrip("/") for name in _read(lambda: tf.io.gfile.listdir(folder))]
        except FileNotFoundError:
            return []

    def text(self, path: str) -> str:
        """`Files.text`."""
        with tf.io.gfile.GFile(path, "rb") as file:
            return str(_read(file.read), "utf-8")

    def size(self, path: str) -> int:
        """`Files.size`."""
        return int(_read(lambda: tf.io.gfile.stat(path)).length)


def _read(read: Callable[[], Read]) -> Read:
    """The result of `read`, whose TensorFlow errors become OSErrors."""
    try:
        return read()
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(error.message) from None
    except tf.errors.OpError as error:
        raise OSError(error.message) from None
