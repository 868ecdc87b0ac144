"""The options about checkpoints, restarts and timeouts, and what they mean."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tfdist.jobs.options import RECOVERY_OPTIONS, TIMEOUT_OPTIONS
from tfdist.launch.errors import TfdistError
from tfdist.launch.policy import Policy
from tfdist.launch.quantities import parse_seconds
from tfdist.strategies.options import option_name, option_text, option_words

AUTO = "auto"
"""The value of --resume that continues what --checkpoint-dir holds, if it holds a checkpoint."""
MAX_S = 1e6
"""The longest of the timeouts: 11 days."""
_POLICY_FIELDS = {
    "start_timeout": "start_timeout_s",
    "grace_period": "grace_s",
    "launcher_timeout": "launcher_timeout_s",
}
_STEPS = re.compile(r"-?[0-9]+")


@dataclass(frozen=True)
class Recovery:
    """The options that were given."""

    every_steps: int | None = None
    every_s: float | None = None
    folder: str | None = None
    """An absolute path or a URL."""
    keep: int | None = None
    resume: str | None = None
    evaluator: bool = False
    policy: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Policy."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Each option as it would be on the command line, by name: `--max-restarts 3`."""


def read_recovery(values: Mapping[str, Any]) -> Recovery:
    """What the values mean, by option name; None counts as not given.

    Raises:
        TfdistError: a value is out of range, or has no effect without another option.
    """
    given = {name: value for name, value in values.items() if value is not None}
    words = {name: option_text(name, value) for name, value in given.items() if value is not False}
    _check(given, words)
    steps, seconds = _interval(given.get("checkpoint_every"))
    return Recovery(
        every_steps=steps,
        every_s=seconds,
        folder=absolute(given["checkpoint_dir"], "--checkpoint-dir") if "checkpoint_dir" in given else None,
        keep=given.get("keep"),
        resume=given.get("resume"),
        evaluator=given.get("evaluator", False),
        policy=_policy(given),
        words=words,
    )


def absolute(folder: str, flag: str) -> str:
    """The folder as an absolute path, which is the same for tasks in other folders; a URL as it is.

    Raises:
        TfdistError: TensorFlow cannot open a folder of this name.
    """
    if not folder.isprintable() or not folder.strip():  # lone surrogates are not printable
        raise TfdistError(f"{flag} {folder!r}: not the name of a folder; use printable UTF-8 characters")
    path = folder.removeprefix("file://")
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - keeps links


def _check(given: Mapping[str, Any], words: Mapping[str, str]) -> None:
    for option in RECOVERY_OPTIONS:
        if option.least is not None and given.get(option.name, option.least) < option.least:
            raise TfdistError(f"{words[option.name]}: must be at least {option.least:g}")
    for name in ("restart_on", "min_workers"):
        if name in given and not given.get("max_restarts"):
            raise TfdistError(
                f"{words[name]}: has no effect without --max-restarts; add it, or omit {option_name(name)}"
            )


def _interval(text: str | None) -> tuple[int | None, float | None]:
    """Steps or seconds."""
    if text is None:
        return None, None
    if not _STEPS.fullmatch(text.strip()):
        try:
            return None, parse_seconds(text if text.strip()[-1:].isalpha() else "", "--checkpoint-every")
        except TfdistError as error:
            raise TfdistError(str(error) if "positive" in str(error) else _not_an_interval(text)) from None
    if int(text) < 1:
        raise TfdistError(f"--checkpoint-every {text}: must be positive")
    return int(text), None


def _not_an_interval(text: str) -> str:
    return f"--checkpoint-every {text}: give a number of steps, as 200, or a duration, as 30s, 10m or 1h"


def _policy(given: Mapping[str, Any]) -> dict[str, Any]:
    names = ("max_restarts", "restart_on", "min_workers", "stop_on_nan")
    fields: dict[str, Any] = {name: given[name] for name in names if name in given}
    if "stall_timeout" in given:
        fields["stall_timeout_s"] = given["stall_timeout"] or None
    return fields


def read_timeouts(values: Mapping[str, float | None]) -> Policy:
    """The policy with these values, by option name; None counts as not given.

    Raises:
        TfdistError: a value is out of range.
    """
    fields: dict[str, Any] = {}
    for option in TIMEOUT_OPTIONS:
        field, value = _POLICY_FIELDS[option.name], values.get(option.name)
        if value is not None and not (option.least or 0.0) <= value <= MAX_S:
            raise TfdistError(
                f"{option_text(option.name, value)}: must be {option.least:g} to {MAX_S:.0f} seconds; "
                f"omit it for {getattr(Policy(), field):g}"
            )
        fields |= {} if value is None else {field: value}
    return replace(Policy(), **fields)


def timeout_words(policy: Policy) -> list[str]:
    """The command-line words of the timeouts that differ from the defaults."""
    values = {name: getattr(policy, field) for name, field in _POLICY_FIELDS.items()}
    given = {name: value for name, value in values.items() if value != getattr(Policy(), _POLICY_FIELDS[name])}
    return [word for name, value in given.items() for word in option_words(name, value)]
