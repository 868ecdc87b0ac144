"""What a function returns in a task, as JSON and the bytes of arrays: no host can make the launcher run code.

It is sent in parts, as events. A dictionary is `{"dict": {...}}` and an array `{"array": number}`, so that neither is
taken for the other.
"""

import base64
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from tfdist.launch import events
from tfdist.launch.agent_program.text import too_many_values, why_refused
from tfdist.launch.agents.inbox import Message, Restarting
from tfdist.launch.agents.messages import Event
from tfdist.launch.typed_json import MAX_DEPTH, Count, MaxLength, from_json, parse_json

MOST_BYTES = 256 << 20
"""Size of a task's value."""
MOST_BYTES_OF_JOB = 1 << 30
MOST_JSON_BYTES, MOST_JSON_VALUES = 16 << 20, 1_000_000
"""Limits of all that is no array: a value takes up to 200 bytes of memory."""
_PART = 384 << 10
"""Bytes of a part: an event may have 1 MiB, and they become a third more in base64."""
_LENGTH = 8
"""Bytes of the number before the JSON."""
_DTYPE = re.compile(r"[<>|](b1|[iu][1248]|f(2|4|8|16)|c(8|16|32)|S[0-9]{1,9}|U[0-9]{1,8})")
"""Types of arrays whose bytes say all. numpy itself reads no other text from outside: `M8[s/0]` ends the process.
Source: https://numpy.org/doc/stable/reference/arrays.interface.html, typestr."""
_MOST_DIMENSIONS = 32
_FIXES = {
    "keras": "save it to TFDIST_CHECKPOINT_DIR",
    "tensor": "return its .numpy(), or float() of it",
    "": "return numbers, texts, lists, dictionaries and numpy arrays, and write the rest to TFDIST_ARM_DIR",
}


@dataclass(frozen=True)
class _Array:
    dtype: Annotated[str, MaxLength(16)]
    shape: tuple[Count, ...]


@dataclass(frozen=True)
class _Header:
    value: Any
    arrays: tuple[_Array, ...]


class _UnfitError(Exception):
    """Something cannot be sent; `path` leads to it, and becomes longer on the way out."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.path = ""


@dataclass
class _Encoder:
    arrays: list[Any] = field(default_factory=list)

    def tree(self, value: Any) -> Any:
        """The value as JSON, with its arrays by number."""
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic) and _DTYPE.fullmatch(value.dtype.str):
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, str):
                    raise _UnfitError(f"has the key {key!r}: make it a text")
            return {"dict": dict(self._items(value.items()))}
        if isinstance(value, list | tuple):
            return [item for _, item in self._items(enumerate(value))]
        if numpy is not None and type(value) is numpy.ndarray and _DTYPE.fullmatch(value.dtype.str):
            self.arrays.append(numpy.asarray(value, order="C"))
            return {"array": len(self.arrays) - 1}
        raise _UnfitError(f"is {_described(value)}")

    def _items(self, items: Any) -> Iterator[tuple[Any, Any]]:
        for key, item in items:
            try:
                yield key, self.tree(item)
            except _UnfitError as error:
                error.path = f"[{key!r}]{error.path}"
                raise


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
        tree = encoder.tree(value)
    except _UnfitError as error:
        raise TypeError(f"values{error.path} {error}") from None
    except RecursionError:
        raise TypeError("values holds itself, or is nested too deeply") from None
    if refusal := why_refused(tree, MAX_DEPTH):
        raise TypeError(f"values: {refusal}")
    arrays = [_Array(each.dtype.str, each.shape) for each in encoder.arrays]
    header = json.dumps(asdict(_Header(tree, tuple(arrays)))).encode()
    if why := _why_too_large(header):
        raise ValueError(f"values: {why} besides arrays: return lists of numbers as numpy arrays")
    size = _LENGTH + len(header) + sum(each.nbytes for each in encoder.arrays)
    if size > MOST_BYTES:
        raise ValueError(f"values has {size / 1e6:.0f} MB: write it to TFDIST_ARM_DIR, and return its path")
    return b"".join([len(header).to_bytes(_LENGTH, "big"), header, *(each.tobytes() for each in encoder.arrays)])


def _why_too_large(header: bytes) -> str:
    """Why a header would fill the memory; empty if it would not."""
    if len(header) > MOST_JSON_BYTES:
        return f"it has more than {MOST_JSON_BYTES >> 20} MiB"
    return f"it has more than {MOST_JSON_VALUES:,} values" if too_many_values(header, MOST_JSON_VALUES) else ""


def decode(data: bytes | bytearray) -> Any:
    """The value in the bytes of `encode`, or of anybody.

    Raises:
        ValueError: they hold no value.
    """
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    text = bytes(data[_LENGTH : min(end, _LENGTH + MOST_JSON_BYTES + 1)])
    if why := _why_too_large(text):
        raise ValueError(why)
    try:
        header = from_json(parse_json(text.decode()), _Header)
    except ValueError as error:
        raise ValueError("it is not in the form in which tfdist sends values") from error
    return _value(header.value, list(_arrays(header.arrays, memoryview(data)[end:])))


def _arrays(headers: Sequence[_Array], data: memoryview) -> Iterator[Any]:
    at = 0
    for header in headers:
        import numpy as np

        if not _DTYPE.fullmatch(header.dtype) or len(header.shape) > _MOST_DIMENSIONS:
            raise ValueError("it has an array of an unknown kind")
        dtype = np.dtype(header.dtype)
        end = at + math.prod(header.shape) * dtype.itemsize
        if end > len(data):
            raise ValueError("it has less bytes than its arrays")
        yield np.frombuffer(data[at:end], dtype).reshape(header.shape).copy()
        at = end
    if at != len(data):
        raise ValueError("it has more bytes than its arrays")


def _value(tree: Any, arrays: Sequence[Any]) -> Any:
    match tree:
        case {"dict": dict(items)}:
            return {key: _value(item, arrays) for key, item in items.items()}
        case {"array": int(number)} if 0 <= number < len(arrays):
            return arrays[number]
        case dict():
            raise ValueError("it has an object that is no value")
        case list() | tuple():
            return [_value(item, arrays) for item in tree]
    return tree


def send(value: Any) -> None:
    """Send the value of this task to the launcher, in parts.

    Raises:
        TypeError, ValueError: as `encode`.
    """
    data = encode(value)
    for at in range(0, len(data), _PART):
        events.emit(events.VALUE, at=at, size=len(data), data=base64.b64encode(data[at : at + _PART]).decode())


@dataclass
class ReturnedValues:
    """Collects what the tasks of a job send; anybody may have written it."""

    data: dict[str, bytearray] = field(default_factory=dict)
    """Bytes by task, of its last attempt."""
    total_bytes: int = 0
    """Number of bytes in `data`."""
    sizes: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """Tasks that have sent something else, and what is wrong with it."""

    def note(self, message: Message) -> None:
        """Take note of a part, or of a restart, after which tasks send again."""
        match message:
            case Event(task, event={"event": events.VALUE, "at": int(at), "size": int(size), "data": str(text)}):
                self._add(task, at, size, text)
            case Restarting(tasks=tasks):
                for task in tasks:
                    self._forget(task)

    def _forget(self, task: str) -> None:
        self.total_bytes -= len(self.data.pop(task, b""))
        self.problems.pop(task, None)

    def _add(self, task: str, at: int, size: int, text: str) -> None:
        if at == 0:
            self._forget(task)
            self.data[task], self.sizes[task] = bytearray(), size
        part = b""
        with suppress(ValueError):
            part = base64.b64decode(text, validate=True)
        known = self.data.get(task, b"")
        if not part or len(known) != at or self.sizes.get(task) != size or not at + len(part) <= size <= MOST_BYTES:
            self._refuse(task, "its parts do not fit together")
        elif self.total_bytes + len(part) > MOST_BYTES_OF_JOB:
            self._refuse(task, f"the values of all tasks have more than {MOST_BYTES_OF_JOB >> 20} MiB")
        else:
            self.data[task] += part
            self.total_bytes += len(part)

    def _refuse(self, task: str, why: str) -> None:
        self._forget(task)
        self.problems[task] = why

    def values(self) -> dict[str, Any]:
        """The values by task; those of tasks with a problem are left out, and so are unfinished ones."""
        found = {}
        for task, data in self.data.items():
            try:
                if len(data) == self.sizes[task]:
                    found[task] = decode(data)
            except ValueError as error:
                self.problems[task] = str(error)
        return found
