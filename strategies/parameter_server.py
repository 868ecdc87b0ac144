"""tf.distribute.experimental.ParameterServerStrategy: the chief's strategy, with its partitioner and placement.

After a restart it waits until each worker reaches each parameter server.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import Placement, parse_partitioner

RETRY_S = 0.2
TIMEOUT_S = 60.0


def wait_for_servers(workers: int, servers: int) -> None:
    """Let each worker read a variable of each server: for the chief, after a restart.

    A worker that has outlived a server tries to connect about once a second and fails all calls in between, also for a
    second after the server is back.

    Raises:
        tf.errors.UnavailableError: a worker reaches a server not in time.
    """
    if os.environ.get("TFDIST_ATTEMPT", "0") == "0":
        return
    deadline = time.monotonic() + TIMEOUT_S
    for server in range(servers):
        with tf.device(f"/job:ps/task:{server}"):
            read = tf.function(tf.Variable(0.0, trainable=False).read_value)
        for worker in range(workers):
            while True:
                try:
                    with tf.device(f"/job:worker/task:{worker}"):
                        read().numpy()
                    break
                except tf.errors.UnavailableError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(RETRY_S)


_PARTITIONERS: Mapping[str, Callable[[int, int], Any]] = {
    "fixed": lambda size, ps: tf.distribute.experimental.partitioners.FixedShardsPartitioner(size),
    "min-size": lambda size, ps: tf.distribute.experimental.partitioners.MinSizePartitioner(size, max_shards=ps),
    "max-size": lambda size, ps: tf.distribute.experimental.partitioners.MaxSizePartitioner(size, max_shards=ps),
}


def build(choice: StrategyChoice) -> tf.distribute.Strategy:
    """The chief's strategy in the cluster of TF_CONFIG. Blocks until all workers and parameter servers are up."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver, variable_partitioner(choice))
    if choice.placement is Placement.GREEDY:
        place_greedily(strategy.extended, choice.ps)
    wait_for_servers(choice.workers, choice.ps)
    return strategy


def variable_partitioner(choice: StrategyChoice) -> Any:
    """The tf.distribute.experimental.partitioners object of `choice`, or None. At most one shard per server."""
    partitioner = parse_partitioner(choice.variable_partitioner)
    if partitioner is None:
        return None
    kind, size = partitioner
    return _PARTITIONERS[kind](size, choice.ps)


def place_greedily(extended: Any, servers: int) -> None:
    """Place each new variable (or shard) on the server that holds the fewest bytes, the lowest index first.

    TensorFlow places variable number `_variable_count` on server `_variable_count % servers`. It has no public API to
    choose the server, so the number is set before each creation.
    """
    create = extended._create_variable_round_robin
    placed_bytes = [0] * servers

    def create_on_least_loaded(next_creator: Any, **kwargs: Any) -> Any:
        server = placed_bytes.index(min(placed_bytes))
        extended._variable_count = server
        variable = create(next_creator, **kwargs)
        placed_bytes[server] += variable.shape.num_elements() * variable.dtype.size
        return variable

    extended._create_variable_round_robin = create_on_least_loaded
