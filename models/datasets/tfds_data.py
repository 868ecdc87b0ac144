"""tfds:NAME: a prepared data set of TensorFlow Datasets, whose metadata are read without TensorFlow or network."""

import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.models.datasets.table import HELD_OUT, DataInfo, Examples

_METADATA = ("dataset_info.json", "features.json")


@dataclass(frozen=True)
class PreparedDataset:
    """One version of a prepared data set, with its training and test splits in TFDS notation."""

    folder: Path
    train: str
    test: str
    info: DataInfo


def find_prepared(name: str, data_dir: str | None) -> PreparedDataset:
    """The newest prepared version of data set `name`, `name/config` or `name/version`.

    Raises:
        TfdistError: not prepared, or its examples are not an image and a label.
    """
    root = Path(os.path.expanduser(data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"))  # noqa: PTH111 - it raises nothing without a home
    versions = sorted((root / name).glob("*"), key=lambda path: (_numbers(path.name), path))
    prepared = [path for path in (*versions, root / name) if all((path / file).is_file() for file in _METADATA)]
    if not prepared:
        raise TfdistError(
            f'--dataset tfds:{name} is not prepared in {root}: prepare it with  python -c "import tensorflow_datasets '
            f'as tfds; tfds.builder({name!r}, data_dir={str(root)!r}).download_and_prepare()"'
        )
    return _read(name, prepared[-1])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else -1 for part in version.split("."))


def _read(name: str, folder: Path) -> PreparedDataset:
    info, features = (_json(folder / file) for file in _METADATA)
    option = f"--dataset tfds:{name}"
    parts = features.get("featuresDict", {}).get("features", {})
    if info.get("fileFormat", "") not in ("tfrecord", ""):  # an old dataset_info.json names none and means tfrecord
        raise TfdistError(f"{option} is prepared as {info['fileFormat']}: prepare it as tfrecord")
    sizes = {split["name"]: sum(map(int, split.get("shardLengths", ()))) for split in info.get("splits", ())}
    if "train" not in sizes:
        raise TfdistError(f"{option} in {folder} has no train split: use another data set")
    if "image" not in parts.get("image", {}) or "classLabel" not in parts.get("label", {}):
        raise TfdistError(f"{option} has {', '.join(parts) or 'no features'}: use a data set with image and label")
    classes = int(parts["label"]["classLabel"]["numClasses"])
    train = sizes["train"]
    for split in ("validation", "test"):  # the labels of some test splits are secret: -1
        if sizes.get(split):
            return PreparedDataset(folder, "train", split, DataInfo(classes, train, sizes[split]))
    kept = train - train // HELD_OUT
    return PreparedDataset(folder, f"train[:{kept}]", f"train[{kept}:]", DataInfo(classes, kept, train - kept))


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise TfdistError(f"{path} cannot be read ({error}): prepare the data set again") from None


def describe(name: str, data_dir: str | None) -> DataInfo:
    """The data set in `data_dir`, else in TFDS_DATA_DIR, else in ~/tensorflow_datasets.

    Raises:
        TfdistError: not prepared, or its examples are not an image and a label.
    """
    return find_prepared(name, data_dir).info


def examples(name: str, data_dir: str | None) -> Examples:
    """The examples in the order of their files; images are decoded later."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    from tfdist.models.datasets.pipeline import decode_image

    dataset = find_prepared(name, data_dir)
    size = dataset.info.train_examples or 0  # None only of synthetic data
    builder = tfds.builder_from_directory(str(dataset.folder))
    encoded = tfds.decode.PartialDecoding(
        {"image": True, "label": True}, decoders={"image": tfds.decode.SkipDecoding()}
    )

    def references(split: str) -> tf.data.Dataset:
        dataset = builder.as_dataset(split=split, decoders=encoded, shuffle_files=False)
        return dataset.map(lambda example: (example["image"], example["label"]))

    def decode(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return decode_image(image), label

    return Examples(partial(references, dataset.train), partial(references, dataset.test), decode, size)
