"""Builds the chosen strategy from the file that the catalog names."""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from tfdist.launch import events
from tfdist.launch.cluster import parse_tf_config
from tfdist.launch.events import Phase
from tfdist.launch.stack_dumps import dump_on_request
from tfdist.strategies import devices
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.serve import serve, serves

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


def build_current() -> "tf.distribute.Strategy":
    """The strategy of this program, as `current` returns it."""
    events.report_failures()
    dump_on_request()
    choice, tf_config = StrategyChoice.from_env(os.environ), os.environ.get("TF_CONFIG")
    if choice is None:
        import tensorflow as tf

        return tf.distribute.MultiWorkerMirroredStrategy() if tf_config else tf.distribute.get_strategy()
    if "tensorflow" not in sys.modules:
        events.emit("phase", phase=Phase.IMPORTING)
        import_module("tensorflow")
    if tf_config is not None:
        cluster, task = parse_tf_config(tf_config)
        if serves(choice, task):
            serve(choice, cluster, task)
    strategy = build(choice)
    events.emit("ready")
    return strategy
