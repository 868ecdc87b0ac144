"""Checks of the keys and values in a suite. Pure."""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

from tfdist.jobs.options import TRAINING
from tfdist.launch.errors import TfdistError
from tfdist.launch.text import check_name, did_you_mean
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import field_types
from tfdist.strategies.options import fix_of_choice

_TYPES: Mapping[str, type] = {**field_types(TrainingSpec), "global_batch_size": int}
_NOTATIONS = {option.name: option for option in TRAINING if option.parser is not None}
TRAINING_KEYS = (*_TYPES, *(name for name in _NOTATIONS if name not in (*_TYPES, "log_limit")))
IN_STEPS = ("steps", "epochs", "warmup_steps", "steps_per_window")
"""Keys of a training that have no effect in a bench."""
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
        TfdistError: an unknown key, one that is not for a bench, or a value that its key does not take.
    """
    counted = next((key for key in choices if key in IN_STEPS), None)
    if counted:
        raise TfdistError(
            f"{source} has {counted}, but a bench trains in turns of seconds: use turn, warmup and rounds"
        )
    if choices.get("log_device_placement"):
        raise TfdistError(
            f"{source} has log_device_placement, whose log would slow the arm down: use it with `tfdist launch`"
        )
    check_keys(choices, [key for key in TRAINING_KEYS if key not in IN_STEPS], source)
    return dict(_in_type(key, value, source) for key, value in choices.items())


def _in_type(key: str, value: Any, source: str) -> tuple[str, Any]:
    """The field that a key sets, and its value: 5s and 4M are read as on the command line."""
    option = _NOTATIONS.get(key)
    if option is None or option.parser is None or (key in _TYPES and not isinstance(value, str)):
        return key, check_value(key, value, _TYPES[key], source)
    return option.field, option.in_unit(option.parser(str(value)))


def check_command(command: Any, source: str) -> None:
    """Refuse a command that is not a list of words.

    Raises:
        TfdistError: it is not one.
    """
    if not isinstance(command, list | tuple) or not command or not all(isinstance(word, str) for word in command):
        raise TfdistError(f'{source} has command = {command!r}: give a list of words, as ["python", "train.py"]')


def check_value(key: str, value: Any, kind: type, source: str) -> Any:
    """`value` as a `kind`, which is a plain type or an Enum.

    Raises:
        TfdistError: it is not one, or a text with a control character.
    """
    if issubclass(kind, Enum):
        if value not in [choice.value for choice in kind]:
            raise TfdistError(f"{source} has {key} = {value!r}: {_fix(key, value, kind)}")
        return kind(value)
    if not of_kind(value, kind):
        raise TfdistError(f"{source} has {key} = {value!r}: must be {_EXPECTED[kind]}")
    if isinstance(value, str):
        check_name(f"{source} has {key} =", value)
    return value


def of_kind(value: Any, kind: type) -> bool:
    """Whether a TOML value is of `kind`: a whole number is also a number, true and false are not."""
    accepted = (int, float) if kind is float else kind
    return isinstance(value, accepted) and (kind is bool or not isinstance(value, bool))


def _fix(key: str, value: Any, kind: type[Enum]) -> str:
    return fix_of_choice(key, str(value), (choice.value for choice in kind))
