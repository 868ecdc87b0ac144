"""The data sets: `synthetic`, `digits`, `tfds:NAME`, `folder:PATH`. No TensorFlow until one is loaded."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from tfdist.launch.errors import TfdistError
from tfdist.models.spec import TrainingSpec

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class DataInfo:
    """Number of classes and examples; None: as many as needed."""

    classes: int | None
    train_examples: int | None
    test_examples: int
    """Held-out examples, for `evaluate`."""


@dataclass(frozen=True)
class Examples:
    """A data set: its references (indices, paths, encoded bytes), and how to decode one."""

    train: "Callable[[], tf.data.Dataset]"
    test: "Callable[[], tf.data.Dataset]"
    decode: "Callable[..., tuple[tf.Tensor, tf.Tensor]]"
    """Makes an image (any size, 3 channels, 0..1) and its label from one reference."""
    size: int
    """Number of training examples; limits the shuffle buffer."""


HELD_OUT = 10
"""One example in HELD_OUT is held out if a data set has no test split."""


SYNTHETIC = "synthetic"
PREPARED = "tfds:"
_MODULES = {"synthetic": "synthetic", "digits": "digits_data", "tfds": "tfds_data", "folder": "folder"}
WITH_NAME = ("tfds", "folder")
"""Kinds of data sets in files that tfdist does not bring along."""


def describe(dataset: str, data_dir: str | None = None) -> DataInfo:
    """The number of classes and examples of a data set, without TensorFlow or network.

    Raises:
        TfdistError: unknown, missing, or not prepared.
    """
    module, name = _module_and_name(dataset)
    info: DataInfo = module.describe(name, data_dir)
    return info


def examples(dataset: str, data_dir: str | None = None) -> Examples:
    """The references and the decoder of a data set other than `synthetic`.

    Raises:
        TfdistError: as `describe`.
    """
    module, name = _module_and_name(dataset)
    loaded: Examples = module.examples(name, data_dir)
    return loaded


def _module_and_name(dataset: str) -> tuple[ModuleType, str]:
    kind, _, name = dataset.partition(":")
    if kind not in _MODULES or bool(name) != (kind in WITH_NAME):
        raise TfdistError(f"--dataset {dataset}: unknown; use synthetic, digits, tfds:NAME or folder:PATH")
    return import_module(f"tfdist.models.datasets.{_MODULES[kind]}"), name


def check_data(spec: TrainingSpec, data: DataInfo) -> None:
    """Refuse other classes than the data set has, evaluation without held-out examples, and a batch larger than it."""
    if data.classes not in (None, spec.classes):
        raise TfdistError(f"--set classes={spec.classes}: {spec.dataset} has {data.classes} classes; omit it")
    if spec.evaluate:
        check_held_out(spec, data, "--set evaluate=true")
    if spec.evaluate_turns:
        check_held_out(spec, data, "evaluate_turns")
    if data.train_examples is not None and data.train_examples < spec.global_batch_size:
        raise TfdistError(
            f"{spec.dataset} has {data.train_examples} training examples, less than one global batch of "
            f"{spec.global_batch_size}: use a smaller --batch-size"
        )


def check_held_out(spec: TrainingSpec, data: DataInfo, option: str) -> None:
    """Refuse an option that needs held-out examples if there are none."""
    if not data.test_examples:
        raise TfdistError(f"{option}: {spec.dataset} has no held-out examples; omit it, or use --dataset digits")
