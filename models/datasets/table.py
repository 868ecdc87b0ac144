"""Which data sets there are: `synthetic`, `digits`, `tfds:NAME`, `folder:PATH`. No TensorFlow until one is loaded."""

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from tfdist.launch.errors import TfdistError
from tfdist.models.datasets.info import DataInfo

if TYPE_CHECKING:
    from tfdist.models.datasets.pipeline import Examples

MODULES: Mapping[str, str] = {
    "synthetic": "synthetic",
    "digits": "digits_data",
    "tfds": "tfds_data",
    "folder": "folder",
}
SYNTHETIC = "synthetic"
_WITH_NAME = ("tfds", "folder")


def describe(dataset: str, data_dir: str | None = None) -> DataInfo:
    """What the launcher must know of a data set before any process starts; it needs neither TensorFlow nor the network.

    Raises:
        TfdistError: there is no such data set, or it is not prepared.
    """
    module, name = _find(dataset)
    info: DataInfo = module.describe(name, data_dir)
    return info


def examples(dataset: str, data_dir: str | None = None) -> "Examples":
    """The references and the decoder of a data set other than `synthetic`.

    Raises:
        TfdistError: as `describe`.
    """
    module, name = _find(dataset)
    found: Examples = module.examples(name, data_dir)
    return found


def _find(dataset: str) -> tuple[ModuleType, str]:
    kind, _, name = dataset.partition(":")
    if kind not in MODULES or bool(name) != (kind in _WITH_NAME):
        raise TfdistError(f"--dataset {dataset!r} is unknown: use synthetic, digits, tfds:NAME or folder:PATH")
    return import_module(f"tfdist.models.datasets.{MODULES[kind]}"), name
