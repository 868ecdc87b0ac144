"""folder:PATH: one subfolder of images per class."""

from functools import partial
from pathlib import Path

from tfdist.launch.errors import TfdistError
from tfdist.models.datasets.table import HELD_OUT, DataInfo, Examples

_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")

Labelled = list[tuple[str, int]]
"""Paths, each with the index of its class."""


def describe(name: str, data_dir: str | None) -> DataInfo:
    """Classes and images below the folder `name`; `data_dir` is unused.

    Raises:
        TfdistError: no such folder, fewer than two classes, or too few images to hold any out.
    """
    train, test = split(Path(name))
    return DataInfo(len(_classes(Path(name))), len(train), len(test))


def split(folder: Path) -> tuple[Labelled, Labelled]:
    """Training and held-out images: every tenth is held out, in order of class and name.

    Raises:
        TfdistError: see `describe`.
    """
    classes = _classes(folder)
    endings = ", ".join(_SUFFIXES)
    images = [(str(path), index) for index, name in enumerate(classes) for path in _images(folder / name)]
    if len(images) < HELD_OUT:
        raise TfdistError(f"--dataset folder:{folder} has {len(images)} images ({endings}): use at least {HELD_OUT}")
    train = [item for position, item in enumerate(images) if position % HELD_OUT != HELD_OUT - 1]
    return train, images[HELD_OUT - 1 :: HELD_OUT]


def _classes(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise TfdistError(f"--dataset folder:{folder}: no such folder")
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if len(names) < 2:
        raise TfdistError(f"--dataset folder:{folder} has {len(names)} subfolders: make one per class, at least two")
    return names


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES and path.name[0] != ".")


def examples(name: str, data_dir: str | None) -> Examples:
    """The images, read and decoded on demand."""
    import tensorflow as tf

    from tfdist.models.datasets.pipeline import decode_image

    train, test = split(Path(name))

    def references(items: Labelled) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(([path for path, _ in items], [label for _, label in items]))

    def decode(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return decode_image(tf.io.read_file(path)), label

    return Examples(partial(references, train), partial(references, test), decode, len(train))
