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
            words += _words(param, value)
    return words


def _words(param: Any, value: Any) -> list[str]:
    if isinstance(value, bool):
        return list(param.opts[:1] if value else param.secondary_opts[:1])
    return [param.opts[0], str(value)]
