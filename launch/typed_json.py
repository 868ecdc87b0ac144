"""JSON from outside as typed values: what a host sends, and files that others may have written.

The annotations of a dataclass or a TypedDict are the table of what is allowed. Nothing else may check such a field.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from tfdist.launch.agent_program.text import MAX_INTEGER, why_refused

MAX_DEPTH = 60
"""Nested lists and objects in a value of any kind; the agent passes events of up to 50 levels."""
T = TypeVar("T")
_Read = Callable[[Any], Any]


@dataclass(frozen=True)
class Between:
    """Bounds of a number, both allowed: `Annotated[int, Between(0, 255)]`."""

    low: float
    high: float

    def check(self, number: float) -> None:
        """Refuse a number out of bounds."""
        if not self.low <= number <= self.high:
            _refuse(number, f"in {self.low:g}..{self.high:g}")


@dataclass(frozen=True)
class Has:
    """Fields that an object must have, while it is kept as it is: `Annotated[Mapping[str, Any], Has(Host)]`."""

    kind: type

    def check(self, value: Any) -> None:
        """Refuse an object without these fields."""
        _reader(self.kind)(value)


@dataclass(frozen=True)
class MaxLength:
    """Limit of a text: `Annotated[str, MaxLength(200)]`."""

    characters: int

    def check(self, text: str) -> None:
        """Refuse a longer text."""
        if len(text) > self.characters:
            _refuse(text, f"at most {self.characters} characters long")


Time = Annotated[float, Between(0, 1 << 37)]
"""Seconds since 1970, as `datetime` can hold them."""
Seconds = Annotated[float, Between(0, 1 << 37)]
Count = Annotated[int, Between(0, (1 << 62) - 1)]
"""A number of things or bytes."""
PositiveInt = Annotated[int, Between(1, 1 << 20)]
"""A number of things of which there are at most a million: products of three have 64 bits."""
PositiveFloat = Annotated[float, Between(1e-9, 1e15)]


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: not JSON, or nested more deeply than Python's stack is high.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value, or one with tuples, with each of its texts changed, the names of fields too.

    Raises:
        RecursionError: nested more deeply than Python's stack is high; `from_json` refuses it.
    """
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [with_texts(item, change) for item in value]
    if isinstance(value, tuple):
        return tuple(with_texts(item, change) for item in value)
    if isinstance(value, dict):
        return {change(name): with_texts(item, change) for name, item in value.items()}
    return value


def from_json(value: Any, kind: type[T]) -> T:
    """A value of `json.loads` as `kind`. Lists become tuples; what a dataclass does not know is left out.

    Args:
        value: from outside.
        kind: a dataclass, TypedDict, Enum, int, float, str, bool, Any, or a tuple, Mapping, Literal or union of these.

    Raises:
        ValueError: it is of another type, out of bounds or nested too deeply, or lacks a field; with the path to it.
    """
    hashable: Any = kind  # mypy: a type[T] may not be
    result: T = _reader(hashable)(value)
    return result


@cache
def _reader(kind: Any) -> _Read:
    """The function that reads this kind; made once, because a report reads a million values."""
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin is Annotated:
        read = _reader(arguments[0])
        rule = arguments[1]

        def limited(value: Any) -> Any:
            result = read(value)
            rule.check(result)
            return result

        return limited
    if origin in (Union, UnionType):
        return _read_union(arguments)
    if origin is Literal:
        return lambda value: value if value in arguments else _refuse(value, f"one of {arguments}")
    if origin is tuple:
        return _read_tuple(arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        read = _reader(arguments[1])
        return lambda value: {_read_str(name): _field(read, name, item) for name, item in _object(value).items()}
    if is_dataclass(kind) or is_typeddict(kind):
        return _read_object(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        members = {member.value: member for member in kind}
        return lambda value: (
            (isinstance(value, str) and members.get(value)) or _refuse(value, f"one of {list(members)}")
        )
    return _SCALARS[kind]


def shown(value: Any) -> str:
    """A JSON value in a message: at most 80 characters; of lists and objects only the type."""
    value = value[:80] if isinstance(value, str) else value
    return (repr(value) if isinstance(value, int | float | str | None) else type(value).__name__)[:80]


def _refuse(value: Any, expected: str) -> NoReturn:
    raise ValueError(f"{shown(value)} is not {expected}")


def _read_any(value: Any) -> Any:
    refusal = why_refused(value, MAX_DEPTH)
    if refusal:
        raise ValueError(refusal)
    return value


def _read_int(value: Any) -> int:
    if type(value) is int and -MAX_INTEGER <= value < MAX_INTEGER:
        return value
    _refuse(value, "an integer of 64 bits")


def _read_float(value: Any) -> float:
    if type(value) in (int, float) and abs(value) < 1.7e308:
        return float(value)
    _refuse(value, "a finite number")


def _read_str(value: Any) -> str:
    if type(value) is str and (value.isascii() or not why_refused(value, 0)):
        return value
    _refuse(value, "a text")


def _read_bool(value: Any) -> bool:
    return value if type(value) is bool else _refuse(value, "true or false")


def _read_null(value: Any) -> None:
    if value is not None:
        _refuse(value, "null")


_SCALARS: Mapping[Any, _Read] = {
    Any: _read_any,
    int: _read_int,
    float: _read_float,
    str: _read_str,
    bool: _read_bool,
    NoneType: _read_null,
}


def _read_union(kinds: tuple[Any, ...]) -> _Read:
    reads = [_reader(kind) for kind in kinds]

    def read(value: Any) -> Any:
        errors = []
        for each in reads:
            try:
                return each(value)
            except ValueError as error:
                errors.append(str(error))
        raise ValueError(errors[0])

    return read


def _read_tuple(kinds: tuple[Any, ...]) -> _Read:
    reads = [_reader(kind) for kind in kinds if kind is not Ellipsis]
    same = reads[0] if kinds[-1] is Ellipsis else None

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or not (same or len(value) == len(reads)):
            _refuse(value, "a list" if same else f"a list of {len(reads)}")
        return tuple(map(same, value)) if same else tuple(each(item) for each, item in zip(reads, value, strict=True))

    return read


def _read_object(kind: Any) -> _Read:
    hints = get_type_hints(kind, include_extras=True)
    if is_typeddict(kind):
        names = list(hints)
        required = set(kind.__required_keys__)
    else:
        given = [each for each in fields(kind) if each.init]
        names = [each.name for each in given]
        required = {each.name for each in given if each.default is MISSING and each.default_factory is MISSING}
    reads = {name: _reader(hints[name]) for name in names}

    def read(value: Any) -> Any:
        values = _object(value)
        missing = required - values.keys()
        if missing:
            raise ValueError(f"{min(missing)} is missing")
        return kind(**{name: _field(each, name, values[name]) for name, each in reads.items() if name in values})

    return read


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else _refuse(value, "an object")


def _field(read: _Read, name: str, value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{name[:80]}: {error}") from None
