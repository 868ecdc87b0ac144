"""What a function returns in a task, as JSON and the bytes of arrays: no host can make the launcher run code.

It is sent in parts, as events.

A dictionary is `{"dict": {...}}` and an array `{"array": number}`, so that neither is taken for the other.
"""

import base64
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from tfdist.launch import events
from tfdist.launch.agent_program.text import why_refused
from tfdist.launch.agents.inbox import Message
from tfdist.launch.agents.messages import Event
from tfdist.launch.typed_json import MAX_DEPTH, Count, MaxLength, from_json, parse_json

MOST_BYTES = 256 << 20
"""Of the value of a task."""
_PART = 384 << 10
"""Bytes of a part: an event may have 1 MiB, and they become a third more in base64."""
_LENGTH = 8
"""Bytes of the number before the JSON."""
_KINDS = "biufcSU"
"""Kinds of numpy types whose bytes say all: https://numpy.org/doc/stable/reference/generated/numpy.dtype.kind.html"""
_FIXES = {
    "keras": "save it to TFDIST_CHECKPOINT_DIR",
    "tensor": "return its .numpy(), or float() of it",
    "": "return numbers, texts, lists, dictionaries and numpy arrays, and write the rest to TFDIST_ARM_DIR",
}


@dataclass(frozen=True)
class _Array:
    dtype: Annotated[str, MaxLength(32)]
    shape: tuple[Count, ...]


@dataclass(frozen=True)
class _Header:
    value: Any
    arrays: tuple[_Array, ...]


@dataclass
class _Encoder:
    arrays: list[Any] = field(default_factory=list)

    def tree(self, value: Any, path: str) -> Any:
        """The value as JSON, with its arrays by number."""
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in _KINDS:
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(f"{path} has the key {key!r}: make it a text")
            return {"dict": {key: self.tree(item, f"{path}[{key!r}]") for key, item in value.items()}}
        if isinstance(value, list | tuple):
            return [self.tree(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in _KINDS:
            self.arrays.append(numpy.ascontiguousarray(value))
            return {"array": len(self.arrays) - 1}
        raise TypeError(f"{path} is {_described(value)}")


def _described(value: Any) -> str:
    kind = type(value)
    parents = {f"{parent.__module__}.{parent.__qualname__}" for parent in kind.__mro__}
    if any("keras" in parent and parent.endswith(".Model") for parent in parents):
        return f"a Keras model: {_FIXES['keras']}"
    fix = _FIXES["tensor"] if hasattr(value, "numpy") else _FIXES[""]
    module = "" if kind.__module__ in ("__main__", "builtins") else f"{kind.__module__}."
    name = f"{module}{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeio' else 'a'} {name}: {fix}"


def encode(value: Any) -> bytes:
    """The bytes of a value: None, numbers, texts, numpy arrays, and lists and dictionaries of these; tuples are lists.

    Raises:
        TypeError: it holds something else; the message has the path to it.
        ValueError: it is too large.
    """
    encoder = _Encoder()
    try:
        tree = encoder.tree(value, "values")
    except RecursionError:
        raise TypeError("values holds itself, or is nested too deeply") from None
    if refusal := why_refused(tree, MAX_DEPTH):
        raise TypeError(f"values: {refusal}")
    arrays = [_Array(each.dtype.str, each.shape) for each in encoder.arrays]
    header = json.dumps(asdict(_Header(tree, tuple(arrays)))).encode()
    parts = [len(header).to_bytes(_LENGTH, "big"), header, *(each.tobytes() for each in encoder.arrays)]
    size = sum(map(len, parts))
    if size > MOST_BYTES:
        raise ValueError(f"the returned value has {size / 1e6:.0f} MB: write it to TFDIST_ARM_DIR, and return its path")
    return b"".join(parts)


def send(value: Any) -> None:
    """In a task: send a value to the launcher, in parts.

    Raises:
        TypeError, ValueError: as `encode`.
    """
    data = encode(value)
    for at in range(0, len(data), _PART):
        events.emit(events.VALUE, at=at, size=len(data), data=base64.b64encode(data[at : at + _PART]).decode())


@dataclass
class Received:
    """Collects what the tasks of a job send; anybody may have written it."""

    data: dict[str, bytearray] = field(default_factory=dict)
    """Bytes by task, of its last attempt."""
    sizes: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """Tasks that have sent something else, and what is wrong with it."""

    def note(self, message: Message) -> None:
        """Take note of a part."""
        match message:
            case Event(task, event={"event": events.VALUE, "at": int(at), "size": int(size), "data": str(text)}):
                self._add(task, at, size, text)

    def _add(self, task: str, at: int, size: int, text: str) -> None:
        if at == 0:
            self.data[task], self.sizes[task] = bytearray(), size
            self.problems.pop(task, None)
        part = b""
        with suppress(ValueError):
            part = base64.b64decode(text, validate=True)
        known = self.data.get(task, b"")
        if not part or len(known) != at or self.sizes.get(task) != size or not at + len(part) <= size <= MOST_BYTES:
            self.problems[task] = "its parts do not fit together"
            self.data.pop(task, None)
        else:
            self.data[task] += part

    def values(self) -> dict[str, Any]:
        """The values by task; those of tasks with a problem are left out, and so are unfinished ones."""
        found = {}
        for task, data in self.data.items():
            try:
                if len(data) == self.sizes[task]:
                    found[task] = decode(bytes(data))
            except ValueError as error:
                self.problems[task] = str(error)
        return found


def decode(data: bytes) -> Any:
    """The value in the bytes of `encode`, or of anybody.

    Raises:
        ValueError: they hold no value.
    """
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    header = from_json(parse_json(data[_LENGTH:end]), _Header)
    arrays = list(_arrays(header.arrays, data, end))
    return _value(header.value, arrays)


def _arrays(headers: Sequence[_Array], data: bytes, at: int) -> Iterator[Any]:
    for header in headers:
        import numpy as np

        try:
            dtype = np.dtype(header.dtype)
        except (TypeError, ValueError, SyntaxError):
            raise ValueError(f"no type of an array: {header.dtype!r}") from None
        end = at + math.prod(header.shape) * dtype.itemsize
        if dtype.kind not in _KINDS or end > len(data):
            raise ValueError(f"no array of {header.dtype} and shape {header.shape}")
        yield np.frombuffer(data[at:end], dtype).reshape(header.shape).copy()
        at = end
    if at != len(data):
        raise ValueError("bytes without an array")


def _value(tree: Any, arrays: Sequence[Any]) -> Any:
    match tree:
        case {"dict": dict(items)}:
            return {key: _value(item, arrays) for key, item in items.items()}
        case {"array": int(number)} if 0 <= number < len(arrays):
            return arrays[number]
        case dict():
            raise ValueError("an unknown object")
        case list() | tuple():
            return [_value(item, arrays) for item in tree]
    return tree
