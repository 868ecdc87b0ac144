"""The options that were given to a command, as words of a `tfdist launch`."""

import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import typer

from tfdist.launch.errors import TfdistError
from tfdist.launch.redact import redact_command, redact_value


@dataclass(frozen=True)
class LaunchWords:
    """Options and the user's command, without secrets."""

    words: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    """Variables of --env whose values are left out: launch copies them from its environment."""

    @property
    def notes(self) -> list[str]:
        """What to tell the user."""
        return [f"the value of {name} is not printed: set {name} before you submit the job" for name in self.secrets]


def launch_words(ctx: typer.Context, without: Collection[str]) -> LaunchWords:
    """The words of the options that were given on the command line or by the environment.

    Args:
        ctx: of a command that has launch's options.
        without: the names of its other parameters.

    Raises:
        TfdistError: an option other than --env holds a secret.
    """
    words: list[str] = []
    secrets: list[str] = []
    for param in ctx.command.params:
        source = ctx.get_parameter_source(str(param.name))
        value: Any = ctx.params.get(str(param.name))
        if param.name in without or param.name == "command" or source is None or source.name == "DEFAULT":
            continue
        if param.name == "env":
            pairs = [word.partition("=") for word in value]
            hidden = [name for name, _, text in pairs if redact_value(name, text) != text]
            value = [name if name in hidden else f"{name}{equals}{text}" for name, equals, text in pairs]
            secrets += hidden
        words += _words(param, value)
    command = list(ctx.params.get("command") or ())
    words += ["--", *command] if command else []
    if redact_command(words) != shlex.join(words):
        raise TfdistError(f"{redact_command(words)}: holds a secret, which the script would show; pass it with --env")
    return LaunchWords(tuple(words), tuple(secrets))


def _words(param: Any, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield param.opts[0] if value else param.secondary_opts[0]
    elif value is not None:
        for item in value if isinstance(value, list | tuple) else [value]:
            yield from (param.opts[0], f"{item:g}" if isinstance(item, float) else str(item))
