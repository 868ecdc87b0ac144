"""Job files: the options of `tfdist launch` in TOML, for `--config` and `--save-config`."""

import json
import math
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from tfdist.launch.errors import TfdistError
from tfdist.launch.redact import redact_command, redact_value

NOT_KEPT = ("config", "save_config", "dry_run", "detach", "json")
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
    return dict(_checked(_read(path), {param.name: param for param in params if param.name not in NOT_KEPT}, path))


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


def _checked(table: Mapping[str, Any], params: Mapping[str, Any], path: Path) -> Iterator[tuple[str, Any]]:
    seen = set()
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in params:
            raise TfdistError(f"{path}: {_unknown(key, name, params)}")
        if name in seen:
            raise TfdistError(f"{path}: {key}: given twice; keep one of {name} and {name.replace('_', '-')}")
        seen.add(name)
        try:
            if name == "checkpoint_every" and type(value) is int:  # a number of steps, or a duration
                value = str(value)
            yield name, _env(value) if name == "env" else _of_kind(params[name].type_descriptor.annotation, value)
        except TypeError as error:
            raise TfdistError(f"{path}: {key} = {_toml(value)}: {error}") from None


def _unknown(key: str, name: str, params: Mapping[str, Any]) -> str:
    if name in NOT_KEPT:
        return f"{key}: not for a job file; use --{name.replace('_', '-')} on the command line"
    if name.removeprefix("no_") in params:
        return f"{key}: no such key; use {name.removeprefix('no_')} = false"
    nearest = get_close_matches(name.casefold(), params, n=1)
    return f"{key}: no such key; " + (
        f"did you mean {nearest[0]}?" if nearest else "the keys are the options of 'tfdist launch --help'"
    )


def _of_kind(kind: Any, value: Any) -> Any:
    """The value as Typer takes it from a default map; raises TypeError with what it must be."""
    if kind == list[str]:
        if isinstance(value, str) or not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise TypeError('must be a list of strings, such as ["a", "b"]')
        return value
    if issubclass(kind, Enum) and type(value) is int:  # keras = 2
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


@dataclass(frozen=True)
class JobFile:
    """The options of a launch, to be written to a file."""

    path: Path
    text: str
    left_out: tuple[str, ...]
    """Variables of --env whose values are secrets: the file names only the variables."""

    def save(self) -> list[str]:
        """Write the file; what to tell the user about it.

        Raises:
            TfdistError: it cannot be written.
        """
        try:
            self.path.write_text(self.text, encoding="utf-8")
        except OSError as error:
            raise TfdistError(f"--save-config {self.path}: {error.strerror}; choose another file") from None
        return [
            *(f"{self.path} does not hold the value of {name}: set {name} before a launch" for name in self.left_out),
            f"options saved: tfdist launch --config {shlex.quote(str(self.path))}",
        ]


def job_file(path: Path, ctx: typer.Context) -> JobFile:
    """The options that were given to a command.

    Raises:
        TfdistError: a value holds a secret, or cannot be written as TOML.
    """
    lines, left_out = [], []
    for param in ctx.command.params:
        source, value = ctx.get_parameter_source(param.name), ctx.params.get(param.name)
        if param.name in NOT_KEPT or source is None or source.name == "DEFAULT" or value is None:
            continue
        if param.name == "env":
            pairs = [word.partition("=") for word in value]
            left_out = [name for name, _, text in pairs if redact_value(name, text) != text]
            value = [name if name in left_out else f"{name}{equals}{text}" for name, equals, text in pairs]
        _refuse_secrets(param.name, value)
        try:
            lines.append(f"{param.name} = {_toml(value)}\n")
        except UnicodeEncodeError:
            raise TfdistError(f"--save-config {path}: {param.name} is not valid UTF-8; omit --save-config") from None
    return JobFile(path, "".join(lines), tuple(left_out))


def _refuse_secrets(name: str, value: Any) -> None:
    words = [str(word) for word in (value if isinstance(value, list) else [value])]
    redacted = redact_command(words)
    if redacted != shlex.join(words):
        raise TfdistError(
            f"--save-config: {name} holds a secret ({redacted}); pass it with --env, or omit --save-config"
        )


def _toml(value: Any) -> str:
    """A value as TOML (https://toml.io/en/v1.0.0). JSON's strings are TOML's, except for DEL and lone surrogates."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else str(value)
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{_toml(str(key))} = {_toml(item)}' for key, item in value.items())}}}"
    text = os.fspath(value) if isinstance(value, Path) else str(value)
    text.encode()  # raises for lone surrogates
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
