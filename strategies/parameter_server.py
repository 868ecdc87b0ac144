"""tf.distribute.experimental.ParameterServerStrategy: the chief's strategy, with its partitioner and placement."""

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from tfdist.strategies.catalog import Placement
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.partitioner import parse_partitioner

_PARTITIONERS: Mapping[str, Callable[[int, int], Any]] = {
    "fixed": lambda size, ps: tf.distribute.experimental.partitioners.FixedShardsPartitioner(size),
    "min-size": lambda size, ps: tf.distribute.experimental.partitioners.MinSizePartitioner(size, max_shards=ps),
    "max-size": lambda size, ps: tf.distribute.experimental.partitioners.MaxSizePartitioner(size, max_shards=ps),
}


def build(choice: StrategyChoice) -> tf.distribute.Strategy:
    """The chief's strategy in the cluster of TF_CONFIG; it blocks until all workers and parameter servers are there."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver, variable_partitioner(choice))
    PLACEMENTS[choice.placement](strategy.extended, choice.ps)
    return strategy


def variable_partitioner(choice: StrategyChoice) -> Any:
    """The tf.distribute.experimental.partitioners object that the choice names, or None. At most one shard a server."""
    chosen = parse_partitioner(choice.variable_partitioner)
    return chosen and _PARTITIONERS[chosen.kind](chosen.size, choice.ps)


def place_greedily(extended: Any, servers: int) -> None:
    """Have each new variable (or shard) put where the fewest bytes are, the lowest index first.

    TensorFlow puts variable number `_variable_count` on server `_variable_count % servers`; there is no public way to
    choose, so the number is set just before each creation.
    """
    create = extended._create_variable_round_robin
    held = [0] * servers

    def create_on_least_loaded(next_creator: Any, **kwargs: Any) -> Any:
        server = held.index(min(held))
        extended._variable_count = server
        variable = create(next_creator, **kwargs)
        held[server] += variable.shape.num_elements() * variable.dtype.size
        return variable

    extended._create_variable_round_robin = create_on_least_loaded


PLACEMENTS: Mapping[Placement, Callable[[Any, int], None]] = {
    Placement.ROUND_ROBIN: lambda extended, servers: None,
    Placement.GREEDY: place_greedily,
}
