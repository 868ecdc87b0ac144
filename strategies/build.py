"""Builds the chosen strategy from the file that the catalog names, or serves another task's."""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from tfdist.launch import events
from tfdist.launch.cluster import Cluster, Task, parse_tf_config
from tfdist.strategies import devices
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.use import report, report_first_step

if TYPE_CHECKING:
    import tensorflow as tf


def build(choice: StrategyChoice) -> "tf.distribute.Strategy":
    """Configure this task's devices and build the strategy. Call it before any TensorFlow operation.

    Raises:
        TfdistError: a device that it needs is missing.
    """
    row = CATALOG[choice.strategy]
    events.emit("phase", phase=events.Phase.CONNECTING if row.has_cluster else events.Phase.BUILDING)
    devices.configure(choice)
    return import_module(f"tfdist.strategies.{row.module}").build(choice)


def build_current() -> "tf.distribute.Strategy":
    """The strategy of this program, as `tfdist.strategies.current` returns it."""
    events.report_failures()
    events.dump_on_request()
    choice = StrategyChoice.from_env(os.environ)
    tf_config = os.environ.get("TF_CONFIG")
    if choice is None:
        import tensorflow as tf

        return tf.distribute.MultiWorkerMirroredStrategy() if tf_config else tf.distribute.get_strategy()
    if "tensorflow" not in sys.modules:
        events.emit("phase", phase=events.Phase.IMPORTING)
        import_module("tensorflow")
    if tf_config is not None:
        cluster, task = parse_tf_config(tf_config)
        if serves(choice, task):
            serve(choice, cluster, task)
    strategy = build(choice)
    events.emit("ready")
    report(strategy, trains=False)
    report_first_step(strategy)
    return strategy


def serves(choice: StrategyChoice, task: Task) -> bool:
    """Whether this task only runs a server for the chief, and no program."""
    return any(role.serves and not role.client and role.name == task.role for role in CATALOG[choice.strategy].roles)


def start_server(choice: StrategyChoice, cluster: Cluster, task: Task) -> "tf.distribute.Server":
    """Start the server of this task, with its devices."""
    import tensorflow as tf

    devices.configure(choice)
    addresses = {role: list(hosts) for role, hosts in cluster.addresses.items()}
    return tf.distribute.Server(addresses, job_name=task.role, task_index=task.index, protocol="grpc")


def serve(choice: StrategyChoice, cluster: Cluster, task: Task) -> NoReturn:
    """Start the server and serve until the launcher stops the process."""
    server = start_server(choice, cluster, task)
    events.emit("ready")
    server.join()
    raise SystemExit(0)
