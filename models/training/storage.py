"""Where the variables of a training are, and what a step of a parameter-server's worker asks of each server."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tfdist.models.record import Storage

_SERVER = re.compile(r"/job:ps/replica:0/task:(\d+)/")


def stored(variables: Iterable[Any]) -> dict[str, Storage]:
    """Number and bytes of variables by device: `ps-0`, or `CPU:0` of this task. Shards and copies count each."""
    held: dict[str, Storage] = {}
    for variable in variables:
        for part in _parts(variable):
            name = device_name(part.device)
            before = held.get(name, Storage())
            size = part.shape.num_elements() * part.dtype.size
            held[name] = replace(before, variables=before.variables + 1, bytes=before.bytes + size)
    return held


def tensorflow_variable(variable: Any) -> Any:
    """The variable; of one of Keras 3, its value, which is TensorFlow's variable (whose `value` is a method)."""
    value = getattr(variable, "value", None)
    return variable if value is None or callable(value) else value


def _parts(variable: Any) -> Iterable[Any]:
    """The shards of a partitioned variable, or the copies of a mirrored one on this task's devices."""
    variable = tensorflow_variable(variable)
    return getattr(variable, "variables", None) or getattr(variable, "values", None) or (variable,)


def device_name(name: str) -> str:
    """`ps-0`, or `CPU:0` of this task, from the full name of a device."""
    server = _SERVER.search(name)
    return f"ps-{server[1]}" if server else name.rpartition("device:")[2] or name


def requests(graph: Any) -> dict[str, Storage]:
    """What the operations of a traced step move between a worker and each server.

    An operation on a variable that the function captures is one request: a read moves the variable's value to the
    worker, any other one the operation's arguments to the server. An operation whose values all stay on the server, as
    those of a moving average do, is none.

    Args:
        graph: the FuncGraph of a tf.function, once its body has been traced. Functions that it calls do not count.
    """
    servers = {
        id(inside): device_name(outside.device) for outside, inside in graph.captures if outside.dtype == tf.resource
    }
    moved: dict[str, Storage] = {}
    for operation in graph.get_operations():
        for server in {servers[id(one)] for one in operation.inputs if id(one) in servers}:
            if server.startswith("ps-"):
                moved[server] = _with(moved.get(server, Storage()), operation, server)
    return {server: storage for server, storage in moved.items() if storage != Storage()}


def _with(before: Storage, operation: Any, server: str) -> Storage:
    if operation.type == "ReadVariableOp":
        if _all_on(server, (user for output in operation.outputs for user in output.consumers())):
            return before
        size = sum(map(bytes_of, operation.outputs))
        return replace(before, reads=before.reads + 1, read_bytes=before.read_bytes + size)
    values = [one for one in operation.inputs if one.dtype != tf.resource]
    if _all_on(server, (one.op for one in values)):
        return before
    size = sum(map(bytes_of, values))
    return replace(before, updates=before.updates + 1, update_bytes=before.update_bytes + size)


def _all_on(server: str, operations: Iterable[Any]) -> bool:
    """Whether there are operations, and all of them are placed on this server."""
    places = [device_name(operation.device) for operation in operations]
    return bool(places) and all(place == server for place in places)


def bytes_of(tensor: Any) -> int:
    """The bytes of a tensor; 0 if its size is not known before a step."""
    elements = tensor.shape.num_elements()
    return 0 if elements is None else int(elements * tensor.dtype.size)


def combined(held: Mapping[str, Storage], moved: Mapping[str, Storage]) -> dict[str, Storage]:
    """Both, by device."""
    devices = dict.fromkeys([*held, *moved])
    return {
        name: replace(moved.get(name, Storage()), variables=one.variables, bytes=one.bytes)
        for name, one in ((name, held.get(name, Storage())) for name in sorted(devices))
    }
