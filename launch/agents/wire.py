"""Messages as lines of JSON. What an agent sends is checked field by field: its host may be compromised."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tfdist.launch.agents.messages import Event, FromAgent, Output, ToAgent
from tfdist.launch.agents.program.text import why_refused
from tfdist.launch.text import plain

MAX_DEPTH = 60
"""Nested lists and objects in a description or an event; the agent passes events of up to 50 levels."""


_STRINGS = tuple[str, ...]
_DESCRIPTION: Mapping[str, Any] = {
    "host": str, "python": str, "executable": str, "packages": Mapping[str, str], "cpu": str, "os": str, "machine": str,
    "cores": tuple[int, ...], "cores_in_use": tuple[int, ...], "busy": float, "driver": str,
    "memory_bytes": int, "memory_free_bytes": int, "disk_free_bytes": int,
    "gpus": _STRINGS, "gpu_ids": _STRINGS, "gpu_uuids": _STRINGS, "gpu_processes": tuple[_STRINGS, ...],
    "gpus_hidden": int, "gpu_devices": int,
}  # fmt: skip
"""What `description.describe` returns, and `core_limit`, a number or None."""


def _kind(message_class: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message_class.__name__).lower()


_FROM_AGENT: Mapping[str, type] = {_kind(message_class): message_class for message_class in get_args(FromAgent)}
_fields = cache(get_type_hints)


def encode(message: ToAgent) -> bytes:
    """The message as one line."""
    return json.dumps({"kind": _kind(type(message)), **asdict(message)}).encode() + b"\n"


def decode(line: bytes) -> FromAgent:
    """The message in a line from an agent. Its fields have the annotated types; JSON lists become tuples.

    Only the output and events of tasks may hold control characters; the launcher prints what is in the other messages.

    Raises:
        ValueError: not a message, for example the output of a login script.
    """
    try:
        values = json.loads(line)
        message_class = _FROM_AGENT[values.pop("kind")]
        kinds = _fields(message_class)
        values = values if message_class in (Output, Event) else _without_controls(values)
        message: FromAgent = message_class(**{name: _checked(value, kinds[name]) for name, value in values.items()})
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a message from an agent: {line[:200]!r}") from error
    return message


def is_description(value: Mapping[str, Any]) -> bool:
    """Whether a hello's description has all that `description.describe` returns."""
    try:
        for name, kind in _DESCRIPTION.items():
            _checked(value[name], kind)
        if value["core_limit"] is not None:
            _checked(value["core_limit"], float)
    except (KeyError, ValueError):
        return False
    same = len(value["gpus"]) == len(value["gpu_ids"]) == len(value["gpu_uuids"])
    return same and bool(value["cores"]) and all(len(row) == 4 for row in value["gpu_processes"])


def _without_controls(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, list):
        return [_without_controls(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): _without_controls(item) for key, item in value.items()}
    return value


def _checked(value: Any, kind: Any) -> Any:
    """The value as `kind`, one of those that messages are annotated with.

    Raises:
        ValueError: it is of another type.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return _check_json(value, MAX_DEPTH)
    if origin is Literal and value in arguments:
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_checked(item, arguments[0]) for item in value)
    if isinstance(value, dict) and origin not in (None, tuple, Literal):
        return {_checked(key, str): _checked(item, arguments[1]) for key, item in value.items()}
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if kind in (int, str) and type(value) is kind:
        return _check_json(value, 0)
    raise ValueError(f"{value!r} is not {kind}")


def _check_json(value: Any, levels: int) -> Any:
    """The value itself.

    Raises:
        ValueError: it is nested more deeply than `levels`, or holds a number or a text that later steps cannot handle.
    """
    refusal = why_refused(value, levels)
    if refusal:
        raise ValueError(refusal)
    return value
