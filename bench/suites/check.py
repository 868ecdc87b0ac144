"""Checks of the keys and values in a suite. Pure."""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.text import did_you_mean
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import field_types

_TYPES: Mapping[str, type] = {**field_types(TrainingSpec), "global_batch_size": int}
TRAINING_KEYS = tuple(_TYPES)
_EXPECTED = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}


def check_keys(keys: Collection[str], known: Collection[str], source: str) -> None:
    """Refuse unknown keys.

    Raises:
        TfdistError: an unknown key.
    """
    for key in keys:
        if key not in known:
            raise TfdistError(f"{source} has the unknown key {key!r}: {did_you_mean(key, known)}")


def check_choices(choices: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The choices of an arm with each value in its type.

    Raises:
        TfdistError: an unknown key, or a value that its key does not take.
    """
    check_keys(choices, TRAINING_KEYS, source)
    return {key: check_value(key, value, _TYPES[key], source) for key, value in choices.items()}


def check_value(key: str, value: Any, kind: type, source: str) -> Any:
    """`value` as a `kind`, which is a plain type or an Enum.

    Raises:
        TfdistError: it is not one.
    """
    if issubclass(kind, Enum):
        if value not in [choice.value for choice in kind]:
            raise TfdistError(f"{source} has {key} = {value!r}: {did_you_mean(str(value), (c.value for c in kind))}")
        return kind(value)
    if not of_kind(value, kind):
        raise TfdistError(f"{source} has {key} = {value!r}: must be {_EXPECTED[kind]}")
    return value


def of_kind(value: Any, kind: type) -> bool:
    """Whether a TOML value is of `kind`: a whole number is also a number, true and false are not."""
    accepted = (int, float) if kind is float else kind
    return isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))
