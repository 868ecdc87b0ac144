"""Job files: the options of `tfdist launch` in TOML, for `--config`."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from importlib import import_module
from json import dumps
from pathlib import Path
from typing import Any

from tfdist.jobs.options import KEYS, Bytes, Seconds
from tfdist.launch.errors import TfdistError
from tfdist.strategies.options import option_words

NOT_KEPT = ("config", "dry_run", "detach", "json", "set")
"""Options that are about one call, not about the job."""
_EXPECTED: Mapping[type, str] = {
    int: "must be an integer",
    float: "must be a number",
    bool: "must be true or false",
    str: "must be a string",
}


def load_config(path: Path, params: Sequence[Any]) -> dict[str, Any]:
    """The values of a job file, by the names of the command's parameters.

    Raises:
        TfdistError: the file cannot be read, or a key or value is wrong.
    """
    kinds = {param.name: param.type_descriptor.annotation for param in params if param.name not in NOT_KEPT}
    if any(param.name == "set" for param in params):
        kinds |= {name: option.kind for name, option in KEYS.items()}
    values = dict(_checked(_read(path), kinds, path))
    settings = [option_words(key, value)[1] for key, value in values.items() if key in KEYS]
    return {**{name: value for name, value in values.items() if name not in KEYS}, "set": settings}


def _read(path: Path) -> Mapping[str, Any]:
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        with path.open("rb") as stream:
            table: Mapping[str, Any] = toml.load(stream)
    except ValueError as error:
        raise TfdistError(f"--config {path}: not TOML ({error}); correct it") from None
    except OSError as error:
        raise TfdistError(f"--config {path}: {error.strerror}; use a readable TOML file") from None
    return table


def _checked(table: Mapping[str, Any], kinds: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Any]]:
    seen = set()
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in kinds:
            raise TfdistError(f"{path}: {_unknown(key, name, kinds)}")
        if name in seen:
            raise TfdistError(f"{path}: {key}: given twice; keep one of {name} and {name.replace('_', '-')}")
        seen.add(name)
        try:
            if name == "checkpoint_every" and type(value) is int:  # a number of steps, or a duration
                value = str(value)
            yield name, _env(value) if name == "env" else _of_kind(kinds[name], value)
        except TypeError as error:
            raise TfdistError(f"{path}: {key} = {dumps(value, ensure_ascii=False, default=str)}: {error}") from None


def _unknown(key: str, name: str, kinds: Mapping[str, Any]) -> str:
    if name in NOT_KEPT:
        return f"{key}: not for a job file; use --{name.replace('_', '-')} on the command line"
    if name.removeprefix("no_") in kinds:
        return f"{key}: no such key; use {name.removeprefix('no_')} = false"
    nearest = get_close_matches(name.casefold(), kinds, n=1)
    return f"{key}: no such key; " + (
        f"did you mean {nearest[0]}?" if nearest else "the keys are the options of 'tfdist launch --help'"
    )


def _of_kind(kind: Any, value: Any) -> Any:
    """The value as Typer takes it from a default map; raises TypeError with what it must be."""
    if kind == list[str]:
        if isinstance(value, str) or not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise TypeError('must be a list of strings, such as ["a", "b"]')
        return value
    if issubclass(kind, Enum | Seconds | Bytes) and type(value) in (int, float):  # keras = 2, timeout = 600
        return str(value)
    kind = kind if kind in _EXPECTED else str
    if type(value) is not kind and not (kind is float and type(value) is int):
        raise TypeError(_EXPECTED[kind])
    return value


def _env(value: Any) -> list[str]:
    """The variables of a table, or of a list as of --env."""
    if not isinstance(value, dict):
        return list(_of_kind(list[str], value))
    for name, text in value.items():
        if type(text) not in (str, int, float):
            raise TypeError(f"{name} must be a string or a number")
    return [f"{name}={text}" for name, text in value.items()]
