"""What all subcommands share: help, and one sentence for wrong input that names the option, variable or file."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from tfdist.cli.options import CHOICES
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.text import check_name, did_you_mean
from tfdist.strategies.options import fix_of_choice


@dataclass(frozen=True)
class _Source:
    """Where the value of an option came from, if not from the command line."""

    flag: str
    name: str
    """`TFDIST_WORKERS=` or `workers = `."""
    raw: str
    """The value as written there."""
    words: tuple[str, ...]
    """The values that messages may quote."""
    omit: str
    """`unset TFDIST_WORKERS` or `remove workers`."""

    def rename(self, sentence: str) -> str:
        """The sentence with the name for the flag where a value follows the flag, or where it starts the sentence."""
        forms = {*self.words, *map(repr, self.words)}
        longest_first = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
        sentence = re.sub(rf"{self.flag} ({longest_first})(?!\w)", lambda match: self.name + match[1], sentence)
        if sentence.startswith(f"{self.flag}:"):  # a flag such as --evaluate
            sentence = f"{self.name}{self.raw}{sentence.removeprefix(self.flag)}"
        return re.sub(rf"\b(drop|omit) {self.flag}(?![\w-])", self.omit, sentence)


def name_sources(sentence: str, ctx: Any) -> str:
    """The sentence with TFDIST_WORKERS=2 or `workers = 2` for `--workers 2` if the environment or a job file set it."""
    for source in _variables(ctx):
        sentence = source.rename(sentence)
    if sentence.startswith("TFDIST_"):
        sentence = re.sub(r"\bomit it\b", "unset it", sentence)
    before = sentence
    for source in _keys(ctx):
        sentence = source.rename(sentence)
    if sentence == before:
        return sentence
    in_file = re.sub(r"\bomit it\b", "remove it", sentence)
    return f"{ctx.params['config']}: {in_file}"


def _variables(ctx: Any) -> Iterator[_Source]:
    for param in _params_from("ENVIRONMENT", ctx):
        raw = os.environ[param.envvar]
        words = (raw, *raw.split(), *_forms(ctx.params.get(param.name)))
        yield _Source(param.opts[0], f"{param.envvar}=", raw, words, f"unset {param.envvar}")


def _keys(ctx: Any) -> Iterator[_Source]:
    for param in _params_from("DEFAULT_MAP", ctx):
        value = ctx.default_map[param.name]
        words = (*value, ",".join(value)) if isinstance(value, list) else (str(value),)
        words += _forms(ctx.params.get(param.name))
        raw = str(value).lower() if isinstance(value, bool) else str(value)
        yield _Source(param.opts[0], f"{param.name} = ", raw, words, f"remove {param.name}")


def _params_from(source: str, ctx: Any) -> list[Any]:
    named = {param: ctx.get_parameter_source(param.name) for param in ctx.command.params}
    return [param for param, origin in named.items() if origin is not None and origin.name == source]


def _forms(value: Any) -> tuple[str, ...]:
    return (str(value), f"{value:g}") if isinstance(value, float) else (str(value),)


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


SENTENCES = {
    "launch": "Run a training: the built-in MobileNetV2, or your program.",
    "runs": "List the recent runs, the newest first.",
    "logs": "Print what the tasks of a run wrote.",
    "attach": "Show a run as its launcher does.",
    "stop": "Stop a run and wait until it has ended.",
    "sbatch": "Print a batch script for Slurm.",
    "export": "Write the model of the last checkpoint of a run.",
    "bench": "Measure every arm of a suite, in turns.",
    "tune": "Find the fastest options of a strategy.",
    "collectives": "Measure all-reduce and other collectives by size.",
    "report": "Write a report of the records in DIR; nothing is run.",
    "compare": "Show which arms became faster or slower between two benches.",
    "history": "Show arms over many benches, by date and commit.",
    "predict": "Predict images/s on more devices or another network.",
    "doctor": "Check whether a job could start.",
    "strategies": "List the strategies, their options and their Keras support.",
    "tf-config": "Print the TF_CONFIG of every task.",
    "manifest": "Print a Kubernetes manifest that runs a training.",
}
"""The subcommands, each with the first sentence of its help: the list of them imports none."""


class Commands(TyperGroup):
    """The list of subcommands."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.commands = {name: TyperCommand(name, help=sentence) for name, sentence in SENTENCES.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the subcommand.

        Raises:
            TfdistError: it does not exist.
        """
        if args[0] not in self.commands and not ctx.resilient_parsing:
            raise TfdistError(f"no command {args[0]!r}: {did_you_mean(args[0], self.commands)}")
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and _command(name), rest


def _command(name: str) -> Any:
    """Import the command: the function of this name. Its help is HELP of the module, or its docstring."""
    word = name.replace("-", "_")
    module = import_module(f"{__package__}.{word}")
    function: Callable[..., Any] = getattr(module, word)
    with_program = "command" in signature(function).parameters  # what follows the program are its own options
    app = typer.Typer(add_completion=False)
    settings = {"allow_interspersed_args": not with_program}
    app.command(name, cls=Command, context_settings=settings, help=getattr(module, "HELP", None))(function)
    return typer.main.get_command(app)


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
