"""folder:PATH, with one subfolder of images for each class."""

from pathlib import Path
from typing import TYPE_CHECKING

from tfdist.launch.errors import TfdistError
from tfdist.models.datasets.info import HELD_OUT, DataInfo

if TYPE_CHECKING:
    from tfdist.models.datasets.pipeline import Examples

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif")

Labelled = list[tuple[str, int]]
"""Paths with the index of their class."""


def describe(name: str, data_dir: str | None) -> DataInfo:
    """Classes and files below the folder `name`; `data_dir` is not needed.

    Raises:
        TfdistError: no such folder, fewer than two classes, or too few images to hold any out.
    """
    train, test = split(Path(name))
    return DataInfo(len(_classes(Path(name))), len(train), len(test))


def split(folder: Path) -> tuple[Labelled, Labelled]:
    """Training and held-out images: of all, in order of class and name, every tenth is held out.

    Raises:
        TfdistError: see `describe`.
    """
    classes = _classes(folder)
    found = [(str(path), index) for index, name in enumerate(classes) for path in _images(folder / name)]
    if len(found) < HELD_OUT:
        raise TfdistError(
            f"--dataset folder:{folder} holds {len(found)} images ({', '.join(SUFFIXES)}): {HELD_OUT} are the least"
        )
    return (
        [item for position, item in enumerate(found) if position % HELD_OUT != HELD_OUT - 1],
        found[HELD_OUT - 1 :: HELD_OUT],
    )


def _classes(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise TfdistError(f"--dataset folder:{folder}: there is no such folder")
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if len(names) < 2:
        raise TfdistError(
            f"--dataset folder:{folder} has {len(names)} subfolders: put each class's images into its own"
        )
    return names


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def examples(name: str, data_dir: str | None) -> "Examples":
    """The images, each read and decoded when its turn comes."""
    import tensorflow as tf

    from tfdist.models.datasets.pipeline import Examples, decode_image

    train, test = split(Path(name))

    def references(items: Labelled) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(([path for path, _ in items], [label for _, label in items]))

    def decode(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return decode_image(tf.io.read_file(path)), label

    return Examples(lambda: references(train), lambda: references(test), decode, len(train))
