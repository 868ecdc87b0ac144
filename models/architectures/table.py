"""Which models there are: a name and the module that builds it. No TensorFlow until one is built."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from tfdist.launch.errors import TfdistError
from tfdist.models.spec import TrainingSpec

if TYPE_CHECKING:
    import tensorflow as tf

MODULES: Mapping[str, str] = {"mobilenet_v2": "mobilenet_v2", "tiny": "tiny"}


def check(name: str) -> None:
    """Refuse a model that is not there.

    Raises:
        TfdistError: `name` is not in the table.
    """
    if name not in MODULES:
        raise TfdistError(f"--model {name!r} is unknown: use {' or '.join(MODULES)}")


def build(spec: TrainingSpec) -> "tf.keras.Model":
    """The model of `spec`, under whatever scope surrounds it.

    Raises:
        TfdistError: the spec names a model that is not there.
    """
    check(spec.model)
    model: tf.keras.Model = import_module(f"tfdist.models.architectures.{MODULES[spec.model]}").build(spec)
    return model
