"""Whether a suite's keys and values are ones that exist, said with the way out."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_type_hints

from tfdist.launch.errors import TfdistError
from tfdist.launch.text import did_you_mean
from tfdist.models.spec import TrainingSpec

TRAINING_KEYS = (*(field.name for field in fields(TrainingSpec)), "global_batch_size")
_TYPES = {**get_type_hints(TrainingSpec), "global_batch_size": int}
_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def check_keys(found: Collection[str], known: Collection[str], where: str) -> None:
    """Refuse the first key that is not known, with the nearest one that is.

    Raises:
        TfdistError: an unknown key.
    """
    for key in found:
        if key not in known:
            raise TfdistError(f"{where} has the unknown key {key!r}: {did_you_mean(key, known)}")


def check_choices(choices: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The choices of an arm with each value in its type.

    Raises:
        TfdistError: an unknown key, or a value that its key does not take.
    """
    check_keys(choices, TRAINING_KEYS, where)
    return {key: _value(key, value, where) for key, value in choices.items()}


def _value(key: str, value: Any, where: str) -> Any:
    kinds = [kind for kind in get_args(_TYPES[key]) or (_TYPES[key],) if kind is not NoneType]
    kind = kinds[0]
    if issubclass(kind, Enum):
        if value not in [choice.value for choice in kind]:
            raise TfdistError(f"{where} has {key} = {value!r}: {did_you_mean(str(value), (c.value for c in kind))}")
        return kind(value)
    if not of_kind(value, kind):
        raise TfdistError(f"{where} has {key} = {value!r}: it takes {_WORDS[kind]}")
    return value


def of_kind(value: Any, kind: type) -> bool:
    """Whether a TOML value is of `kind`: a whole number is a number too, true and false are not."""
    accepted = (int, float) if kind is float else kind
    return isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))
