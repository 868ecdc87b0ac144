"""What a step of a worker moves to and from each parameter server, from its graph."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import tensorflow as tf

from tfdist.models.record import Storage
from tfdist.models.training.storage import bytes_of, device_name


def of_step(fetches: Iterable[Any]) -> dict[str, Storage]:
    """The tensors that cross from a server to the worker (reads) or back (updates) when a session fetches these.

    A tensor that several operations of the worker use is moved once.
    """
    moved: dict[str, Storage] = {}
    for tensor, source, target in _crossings(fetches):
        size = bytes_of(tensor)
        if source.startswith("ps-"):
            before = moved.get(source, Storage())
            moved[source] = replace(before, reads=before.reads + 1, read_bytes=before.read_bytes + size)
        if target.startswith("ps-"):
            before = moved.get(target, Storage())
            moved[target] = replace(before, updates=before.updates + 1, update_bytes=before.update_bytes + size)
    return moved


def _crossings(fetches: Iterable[Any]) -> Iterator[tuple[tf.Tensor, str, str]]:
    """Each tensor whose consumer is on another device, with the names of both."""
    seen: set[tuple[int, str]] = set()
    for operation in _ancestors(fetches):
        target = _place(operation)
        for tensor in operation.inputs:
            source = _place(tensor.op)
            if tensor.dtype != tf.resource and source != target and (id(tensor), target) not in seen:
                seen.add((id(tensor), target))
                yield tensor, source, target


def _ancestors(fetches: Iterable[Any]) -> Iterator[tf.Operation]:
    """The operations that run when these are fetched."""
    waiting = [getattr(fetch, "op", fetch) for fetch in fetches]
    seen = {id(operation) for operation in waiting}
    while waiting:
        operation = waiting.pop()
        yield operation
        for needed in (*(tensor.op for tensor in operation.inputs), *operation.control_inputs):
            if id(needed) not in seen:
                seen.add(id(needed))
                waiting.append(needed)


def _place(operation: tf.Operation) -> str:
    """`ps-0`, or what the device is called. TensorFlow runs operations on a variable or queue where that is."""
    for tensor in operation.inputs:
        if tensor.dtype == tf.resource:
            return device_name(tensor.op.device)
    return device_name(operation.device)
