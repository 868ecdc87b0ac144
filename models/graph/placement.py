"""Where the variables of a graph are: on parameter servers in turn, on the least loaded one, or in shards."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfdist.launch.cluster import Task
from tfdist.models.graph.sessions import device_of
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.options import Placement
from tfdist.strategies.parameter_server import variable_partitioner

Creator = Callable[..., Any]
"""Makes a variable from the next creator and keyword arguments, as `tf.variable_creator_scope` takes it."""


def holders(spec: TrainingSpec) -> tuple[str, ...]:
    """The devices that hold the variables: the parameter servers, or without them the first worker."""
    tasks = [Task("ps", index) for index in range(spec.ps)] or [Task("worker", 0)]
    return tuple(f"{device_of(task)}/device:CPU:0" for task in tasks)


def untracked(initial_value: Any, name: str) -> tf.Variable:
    """A variable that is none of the model's: it is in no collection of the graph."""
    return tf.compat.v1.Variable(initial_value, trainable=False, use_resource=True, collections=[], name=name)


def placing(spec: TrainingSpec) -> Creator:
    """A creator that places each new variable, or each shard of one. Their values are assigned later.

    All tasks of a job must create the same variables in the same order, so that they find each other's.
    """
    partitioner = variable_partitioner(spec)
    load = dict.fromkeys(holders(spec), 0)  # bytes on each device; number of variables, if they are placed in turn

    def place(next_creator: Creator, shape: Sequence[int], kwargs: dict[str, Any]) -> Any:
        dtype = tf.as_dtype(kwargs["dtype"])
        device = min(load, key=lambda name: load[name])
        load[device] += math.prod(shape) * dtype.size if spec.placement is Placement.GREEDY else 1
        with tf.device(device):
            return next_creator(**{**kwargs, "shape": shape, "initial_value": lambda: tf.zeros(shape, dtype)})

    def create(next_creator: Creator, **kwargs: Any) -> Any:
        shape = tuple(kwargs.get("shape") or ())
        shards = 1
        if partitioner is not None and shape and kwargs["trainable"]:
            shards = int(min(partitioner(shape=tf.TensorShape(shape), dtype=tf.as_dtype(kwargs["dtype"]))[0], shape[0]))
        if shards == 1:  # also moving statistics: in a graph, TensorFlow does not update shards of them
            return place(next_creator, shape, kwargs)
        parts = [
            place(next_creator, (rows, *shape[1:]), {**kwargs, "name": f"{kwargs['name']}/part_{number}"})
            for number, rows in enumerate(sizes_of_shards(shape[0], shards))
        ]
        return tf.__internal__.distribute.ShardedVariable(parts)

    return create


def sizes_of_shards(rows: int, shards: int) -> list[int]:
    """Rows of each shard of a variable: as equal as possible, larger ones first."""
    return [rows // shards + (number < rows % shards) for number in range(shards)]
