"""Builds the chosen architecture from its file in this folder."""

from importlib import import_module
from typing import TYPE_CHECKING

from tfdist.models.spec import TrainingSpec

if TYPE_CHECKING:
    import tensorflow as tf


def build(spec: TrainingSpec) -> "tf.keras.Model":
    """The model of `spec`, in the current strategy scope."""
    return import_module(f"tfdist.models.architectures.{spec.model}").build(spec)
