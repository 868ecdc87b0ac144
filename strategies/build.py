"""Builds the chosen strategy from the file that the catalog names."""

from importlib import import_module
from typing import TYPE_CHECKING

from tfdist.launch import events
from tfdist.launch.events import Phase
from tfdist.strategies import devices
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice

if TYPE_CHECKING:
    import tensorflow as tf


def build(choice: StrategyChoice) -> "tf.distribute.Strategy":
    """Configure this task's devices and build the strategy. Call it before any TensorFlow operation.

    Raises:
        TfdistError: a device that it needs is missing.
    """
    row = CATALOG[choice.strategy]
    events.emit("phase", phase=Phase.CONNECTING if row.has_cluster else Phase.BUILDING)
    devices.configure(choice)
    module = import_module(f"tfdist.strategies.{row.module}")
    strategy: tf.distribute.Strategy = module.build(choice)
    return strategy
