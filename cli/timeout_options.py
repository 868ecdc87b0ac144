"""The options that set timeouts, shared by launch, bench and doctor."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tfdist.cli.options import annotation, gather
from tfdist.launch.errors import TfdistError
from tfdist.launch.policy import Policy
from tfdist.launch.text import flag_of

TIMEOUTS = "Timeouts"
MAX_S = 1e6
"""The largest of these timeouts: 11 days."""

_ROWS: tuple[tuple[str, str, float, str], ...] = (
    ("start_timeout", "start_timeout_s", 1.0, "Seconds for all hosts to be ready, and then for all tasks to be started. Default: 60."),
    ("grace_period", "grace_s", 0.0, "Seconds between SIGTERM and SIGKILL when tasks are stopped. Default: 5."),
    ("launcher_timeout", "launcher_timeout_s", 5.0, "Seconds that tasks on other hosts outlive a silent launcher: Ctrl-Z, a closed laptop, a cut link. Default: 60."),
)  # fmt: skip
"""Name, field of Policy, smallest value and help text."""
_OPTIONS: Mapping[str, Any] = {name: annotation(name, float, TIMEOUTS, text) for name, _, _, text in _ROWS}


def timeout_options(only: tuple[str, ...] = tuple(_OPTIONS)) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options; its parameter `policy` is the Policy that they mean."""
    return gather("policy", {name: _OPTIONS[name] for name in only}, read_timeouts)


def read_timeouts(values: Mapping[str, float | None]) -> Policy:
    """The policy with these values, by option name; None counts as not given.

    Raises:
        TfdistError: a value is out of range.
    """
    default = Policy()
    given = [(row, value) for row in _ROWS if (value := values.get(row[0])) is not None]
    for (name, field, least, _), value in given:
        if not least <= value <= MAX_S:
            raise TfdistError(
                f"{flag_of(name)} {value:g}: must be {least:g} to {MAX_S:.0f} seconds; "
                f"omit it for {getattr(default, field):g}"
            )
    fields: dict[str, Any] = {row[1]: value for row, value in given}
    return replace(default, **fields)


def timeout_words(policy: Policy) -> list[str]:
    """The command-line words of the timeouts that differ from the defaults."""
    default = type(policy)()
    values = {
        name: getattr(policy, field) for name, field, _, _ in _ROWS if getattr(policy, field) != getattr(default, field)
    }
    return [word for name, value in values.items() for word in (flag_of(name), f"{value:g}")]
