"""The options about checkpoints and restarts, and what they mean."""

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfdist.cli.durations import parse_seconds
from tfdist.cli.options import annotation, gather
from tfdist.launch.errors import TfdistError
from tfdist.launch.policy import RestartOn
from tfdist.launch.text import flag_of

RECOVERY = "Checkpoints and restarts"
AUTO = "auto"
"""The value of --resume that continues what --checkpoint-dir holds, if it holds a checkpoint."""

_ROWS: tuple[tuple[str, Any, str], ...] = (
    ("checkpoint_every", str, "Save a checkpoint every N steps (200) or after a time (30s, 10m, 1h). Built-in training only; your own program saves by itself in TFDIST_CHECKPOINT_DIR."),
    ("checkpoint_dir", str, "Folder of the checkpoints, shared by all hosts that train; gs:// and the like work, too. Default: checkpoints in the run's folder."),
    ("keep", int, "Number of checkpoints to keep, the newest ones. Default: 3."),
    ("resume", str, "Continue from the last checkpoint of a run (last, a name or a path) or of a folder. auto: of --checkpoint-dir if it holds one, else start."),
    ("evaluator", bool, "Add a task that measures accuracy on held-out examples of each checkpoint, on the CPU."),
    ("max_restarts", int, "Restart failed tasks from the last checkpoint, at most this many times. Default: 0."),
    ("restart_on", RestartOn, "What to restart after, with --max-restarts: {choices}. preemption is exit code 42. Default: any."),
    ("min_workers", int, "With --max-restarts: continue with fewer workers, at least this many, if hosts are lost (multiworker, parameter-server, between-graph, in-graph). Default: all hosts are needed."),
    ("stall_timeout", float, "Seconds without a step from any task after which the stacks of all tasks are saved and the job is stopped, or restarted; 0 for no limit. Default: 300."),
    ("stop_on_nan", bool, "Stop when the loss is not finite. Default: print a warning."),
)  # fmt: skip
_OPTIONS: Mapping[str, Any] = {name: annotation(name, kind, RECOVERY, text) for name, kind, text in _ROWS}
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
    """Each option as it would be on the command line, by name: `--keep 3`."""


def recovery_options() -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options; its parameter `recovery` is what they mean."""
    return gather("recovery", _OPTIONS, read_recovery)


def read_recovery(values: Mapping[str, Any]) -> Recovery:
    """What the values mean, by option name; None counts as not given.

    Raises:
        TfdistError: a value is out of range, or has no effect without another option.
    """
    given = {name: value for name, value in values.items() if value is not None}
    words = {name: _words(name, value) for name, value in given.items() if value is not False}
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


def _words(name: str, value: Any) -> str:
    return flag_of(name) if value is True else f"{flag_of(name)} {f'{value:g}' if type(value) is float else value}"


def _check(given: Mapping[str, Any], words: Mapping[str, str]) -> None:
    for name, least in (("keep", 1), ("max_restarts", 0), ("min_workers", 1)):
        if given.get(name, least) < least:
            raise TfdistError(f"{words[name]}: must be at least {least}")
    if not 0 <= given.get("stall_timeout", 0.0) < math.inf:
        raise TfdistError(f"{words['stall_timeout']}: must be positive, or 0 for no limit; omit it for 300")
    for name in ("restart_on", "min_workers"):
        if name in given and not given.get("max_restarts"):
            raise TfdistError(f"{words[name]}: has no effect without --max-restarts; add it, or omit {flag_of(name)}")


def _interval(text: str | None) -> tuple[int | None, float | None]:
    """Steps or seconds."""
    if text is None:
        return None, None
    if not _STEPS.fullmatch(text.strip()):
        try:
            return None, parse_seconds(text if re.search("[a-z]$", text.strip()) else "", "--checkpoint-every")
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
