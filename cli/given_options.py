"""The options of a command that were given, as words of a command line."""

from collections.abc import Collection
from typing import Any

import typer


def given_words(ctx: typer.Context, names: Collection[str]) -> list[str]:
    """The words that set these parameters to their values, whether the command line, a variable or a file gave them."""
    words: list[str] = []
    for param in ctx.command.params:
        source, value = ctx.get_parameter_source(str(param.name)), ctx.params.get(str(param.name))
        if param.name in names and source is not None and source.name != "DEFAULT" and value is not None:
            words += option_words(param, value)
    return words


def option_words(param: Any, value: Any) -> list[str]:
    """The words that set a parameter of a command to this value, several times if it is a list."""
    if isinstance(value, bool):
        return list(param.opts[:1] if value else param.secondary_opts[:1])
    values = value if isinstance(value, list | tuple) else [value]
    return [word for one in values for word in (param.opts[0], _written(one))]


def _written(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
