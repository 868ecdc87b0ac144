"""The options that were given to a command, as words of a `tfdist launch`, without secrets."""

import shlex
from collections.abc import Collection
from dataclasses import dataclass

import typer

from tfdist.cli.given_options import given_words
from tfdist.launch.errors import TfdistError
from tfdist.launch.redact import redact_command, redact_value


@dataclass(frozen=True)
class LaunchWords:
    """Options and the user's command."""

    words: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    """Variables of --env whose values are left out: launch copies them from its environment."""

    @property
    def notes(self) -> list[str]:
        """What to tell the user."""
        return [f"the value of {name} is not printed: set {name} before you submit the job" for name in self.secrets]


def launch_words(ctx: typer.Context, without: Collection[str]) -> LaunchWords:
    """The words of the options that were given, and of the command.

    Args:
        ctx: of a command that has launch's options.
        without: the names of its other parameters.

    Raises:
        TfdistError: an option other than --env holds a secret.
    """
    names = {str(param.name) for param in ctx.command.params} - {*without, "env", "command"}
    pairs = [text.partition("=") for text in ctx.params.get("env") or ()]
    secrets = tuple(name for name, _, value in pairs if redact_value(name, value) != value)
    variables = [name if name in secrets else f"{name}{equals}{value}" for name, equals, value in pairs]
    command = list(ctx.params.get("command") or ())
    words = (
        *given_words(ctx, names),
        *(word for text in variables for word in ("--env", text)),
        *(["--", *command] if command else []),
    )
    if redact_command(words) != shlex.join(words):
        raise TfdistError(f"{redact_command(words)}: holds a secret, which the script would show; pass it with --env")
    return LaunchWords(words, secrets)
