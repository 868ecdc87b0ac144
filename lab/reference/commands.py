"""The commands and their options, as Typer reads them."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import typer
from typer.core import TyperOption

from tfdist.cli.command import SENTENCES, app

PROGRAM = "tfdist"


@dataclass(frozen=True)
class Parameter:
    """An option or an argument."""

    words: str
    """`-H, --hosts <str>`, as the help of the command writes it."""
    text: str
    """Its help, with the default."""
    panel: str
    """The part of the help that lists it; empty for an argument."""
    key: str
    """Key in a job file, if the command reads one."""
    variable: str
    """The environment variable that sets it; empty if none does."""
    kind: Any
    """The type of its value."""


@dataclass(frozen=True)
class Command:
    """A subcommand, or `tfdist` itself."""

    name: str
    """Empty for `tfdist` itself."""
    usage: str
    paragraphs: tuple[str, ...]
    """Its help, without the examples."""
    examples: tuple[str, ...]
    """Command lines. A long one is continued in the next line."""
    parameters: tuple[Parameter, ...]

    @property
    def title(self) -> str:
        """`tfdist launch`."""
        return f"{PROGRAM} {self.name}".rstrip()

    def panels(self) -> dict[str, list[Parameter]]:
        """The parameters by panel: the arguments, then the options in the order of the help."""
        order = sorted(self.parameters, key=lambda parameter: parameter.panel != "")
        return {
            panel: [each for each in order if each.panel == panel]
            for panel in dict.fromkeys(each.panel for each in order)
        }


@cache
def commands() -> tuple[Command, ...]:
    """`tfdist` itself, then its subcommands in the order of the help."""
    group: Any = typer.main.get_command(app)
    root = group.make_context(PROGRAM, [], resilient_parsing=True)
    found = [_command("", group, root)]
    for name in SENTENCES:
        _, command, _ = group.resolve_command(root, [name])
        context = command.make_context(name, [], parent=root, resilient_parsing=True)
        found.append(_command(name, command, context))
    return tuple(found)


def _command(name: str, command: Any, context: Any) -> Command:
    blocks = [block.strip("\n") for block in command.help.split("\n\n")]
    paragraphs = [" ".join(block.split()) for block in blocks if not block.startswith("\b")]
    examples = [line for block in blocks if block.startswith("\b") for line in block.splitlines()[2:]]
    return Command(
        name,
        " ".join([context.command_path, *command.collect_usage_pieces(context)]),
        tuple(map(_unescaped, paragraphs)),
        tuple(line.removeprefix("  ") for line in examples),
        tuple(_parameter(param, context) for param in command.get_params(context)),
    )


def _parameter(param: Any, context: Any) -> Parameter:
    param.show_envvar = False  # it has a place of its own
    words, text = param.get_help_record(context)
    is_option = isinstance(param, TyperOption)
    return Parameter(
        words.strip() if is_option else param.metavar,
        _unescaped(text.replace("  [", " [")),
        (param.rich_help_panel or "Options") if is_option else "",
        param.name,
        param.envvar or "",
        param.type_descriptor.annotation,
    )


def _unescaped(text: str) -> str:
    """A text without the escapes of rich's markup."""
    return text.replace("\\[", "[")
