"""From a spec to the strategy that it names: the only place that knows which file makes which."""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from tfdist.strategies import devices
from tfdist.strategies.catalog import StrategyName
from tfdist.strategies.choice import StrategyChoice

if TYPE_CHECKING:
    import tensorflow as tf

MODULES: Mapping[StrategyName, str] = {
    StrategyName.ONE_DEVICE: "one_device",
    StrategyName.MIRRORED: "mirrored",
    StrategyName.MULTI_WORKER: "multi_worker",
    StrategyName.CENTRAL_STORAGE: "central_storage",
    StrategyName.PARAMETER_SERVER: "parameter_server",
    StrategyName.TPU: "tpu",
    StrategyName.INDEPENDENT: "one_device",
}
"""`auto` is not in it: the launcher resolves it before any task starts."""


def build(choice: StrategyChoice) -> "tf.distribute.Strategy":
    """Configure this task's devices and make the strategy of `choice`. Call it before any TensorFlow operation.

    Raises:
        TfdistError: the devices that it needs are not there.
    """
    devices.configure(choice)
    strategy: tf.distribute.Strategy = import_module(f"tfdist.strategies.{MODULES[choice.strategy]}").build(choice)
    return strategy
