"""What workers and parameter servers of ParameterServerStrategy do all their life: serve the chief."""

import os
from collections.abc import Callable
from typing import NoReturn

from tfdist.launch.cluster import Cluster, Task
from tfdist.strategies import devices
from tfdist.strategies.catalog import StrategyName
from tfdist.strategies.choice import StrategyChoice

SERVING_ROLES = ("worker", "ps")


def serves(choice: StrategyChoice, task: Task) -> bool:
    """Whether this task has no program of its own."""
    return choice.strategy is StrategyName.PARAMETER_SERVER and task.role in SERVING_ROLES


def serve(choice: StrategyChoice, cluster: Cluster, task: Task, ready: Callable[[], None]) -> NoReturn:
    """Start the server, call `ready`, and serve until the launcher ends the process."""
    # Without it a call to a server that is not up yet fails for good
    # (https://www.tensorflow.org/tutorials/distribute/parameter_server_training).
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    import tensorflow as tf

    devices.configure(choice)
    peers = {role: list(hosts) for role, hosts in cluster.addresses.items()}
    server = tf.distribute.Server(peers, job_name=task.role, task_index=task.index, protocol="grpc")
    ready()
    server.join()
    raise SystemExit(0)
