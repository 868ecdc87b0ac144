"""What all subcommands share: how their help looks, and one sentence for wrong input that names its source."""

import os
import re
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

from tfdist.cli.options import CHOICES
from tfdist.cli.sources import name_sources
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.text import check_name, did_you_mean
from tfdist.strategies.options import fix_of_choice

EPILOG = "Each option can also be set by an environment variable, for example --ssh-port by TFDIST_SSH_PORT."
_EXPECTED = {"integer": "must be an integer", "number": "must be a number", "boolean": "must be true or false"}
_EMPTY = "''"
_ANY_TEXT = ("command", "env")
"""Parameters whose values reach the tasks as they are."""
_USAGE = (
    (r"Option '(.+)' requires an argument\.", r"\1: needs a value"),
    (r"Option '(.+)' does not take a value\.", r"\1: takes no value"),
    (r"Got unexpected extra argument\(?s?\)? \((.*)\)", r"\1: unexpected argument"),
    (r"Missing argument '([^'.]+).*", r"\1: missing argument"),
)
"""Typer's messages about words of the command line, and ours."""


class Commands(TyperGroup):
    """The list of subcommands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the subcommand.

        Raises:
            TfdistError: it does not exist.
        """
        if args[0] not in self.commands and not ctx.resilient_parsing:
            raise TfdistError(f"no command {args[0]!r}: {did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A subcommand. Its help is in panels, which take a quarter of a second to load."""

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **{**values, "rich_markup_mode": "rich", "epilog": EPILOG})

    def get_params(self, ctx: Any) -> Any:
        """The options and arguments, with short placeholders for the values of options."""
        params = super().get_params(ctx)
        for param in params:
            if isinstance(param, TyperOption) and (param.is_flag or param.multiple or param.name in CHOICES):
                param.metavar = "" if param.is_flag else "<str>" if param.multiple else "<name>"
        return params

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            TfdistError: as the command raises it, but naming where wrong values came from; a value has a control
                character; or interrupted.
        """
        try:
            _check_texts(ctx)
            return super().invoke(ctx)
        except KeyboardInterrupt:  # Typer would exit without a message
            raise TfdistError("interrupted", ExitCode.INTERRUPTED) from None
        except TfdistError as error:
            raise TfdistError(name_sources(str(error), ctx), error.exit_code) from error


def _check_texts(ctx: Any) -> None:
    for param in ctx.command.params:
        value = ctx.params.get(param.name)
        texts = [] if param.name in _ANY_TEXT else value if isinstance(value, list) else [value]
        for text in texts:
            if isinstance(text, str | Path):
                check_name(param.opts[0] if isinstance(param, TyperOption) else param.metavar.rstrip("."), str(text))


def usage_sentence(error: Any, arguments: list[str]) -> str:
    """The message about a wrong command line: the option with its value, then how to fix it.

    Args:
        error: a usage error that Typer raised.
        arguments: the command line, which Typer's own message leaves out.
    """
    ctx, param = getattr(error, "ctx", None), getattr(error, "param", None)
    if hasattr(error, "possibilities"):
        nearest = f"did you mean {error.possibilities[0]}? See" if error.possibilities else "see"
        return f"{error.option_name}: no such option; {nearest} '{error.ctx.command_path} --help'"
    if ctx is None or not isinstance(param, TyperOption):
        return _about_words(" ".join(error.format_message().split()), arguments)
    if type(error).__name__ == "MissingParameter":
        return f"{param.opts[0]}: missing option; see '{ctx.command_path} --help'"
    words = arguments[arguments.index(ctx.info_name) + 1 :]
    value = ctx.command.make_parser(ctx).parse_args(words)[0].get(param.name)
    if value is None:
        value = os.environ.get(str(param.envvar)) or (ctx.default_map or {}).get(param.name, "")
    value = str(value)
    expected = re.match(r"Input should be a valid (\w+)", error.message)
    fix = error.message
    if param.name in CHOICES:
        fix = fix_of_choice(param.name, value, CHOICES[param.name])
    if error.message.endswith("is not readable."):
        fix = "not readable; change its permissions, or choose another file"
    return name_sources(f"{param.opts[0]} {value or _EMPTY}: {_EXPECTED[expected[1]] if expected else fix}", ctx)


def _about_words(sentence: str, arguments: list[str]) -> str:
    command = "tfdist" if arguments[0].startswith("-") else f"tfdist {arguments[0]}"
    for pattern, ours in _USAGE:
        if re.fullmatch(pattern, sentence):
            return f"{re.sub(pattern, ours, sentence)}; see '{command} --help'"
    return sentence
