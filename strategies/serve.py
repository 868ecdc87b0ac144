"""The servers of ParameterServerStrategy: its workers and parameter servers only serve the chief."""

from typing import NoReturn

from tfdist.launch import events
from tfdist.launch.cluster import Cluster, Task
from tfdist.strategies import devices
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice


def serves(choice: StrategyChoice, task: Task) -> bool:
    """Whether this task runs a server instead of a program."""
    return any(role.serves and not role.client and role.name == task.role for role in CATALOG[choice.strategy].roles)


def serve(choice: StrategyChoice, cluster: Cluster, task: Task) -> NoReturn:
    """Start the server and serve until the launcher stops the process."""
    import tensorflow as tf

    devices.configure(choice)
    addresses = {role: list(hosts) for role, hosts in cluster.addresses.items()}
    server = tf.distribute.Server(addresses, job_name=task.role, task_index=task.index, protocol="grpc")
    events.emit("ready")
    server.join()
    raise SystemExit(0)
