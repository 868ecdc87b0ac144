"""The options of commands, from the table in jobs/options.py or of one command only, as Typer reads them.

A command takes options of the table with a decorator, and receives what they mean as one argument. Every option can
also be set by an environment variable: TFDIST_ and its name.
"""

import inspect
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Annotated, Any

import typer

from tfdist.cli.scheduler import scheduler_of
from tfdist.jobs.host_selection import HostSelection, select_hosts
from tfdist.jobs.options import (
    HOST_OPTIONS,
    KEYS,
    OUTPUT,
    RECOVERY_OPTIONS,
    SIZE,
    TIMEOUT_OPTIONS,
    TRAIN,
    TRAINING,
    Option,
    read_setting,
)
from tfdist.jobs.presets import PRESETS
from tfdist.jobs.recovery import read_recovery, read_timeouts
from tfdist.launch.errors import TfdistError
from tfdist.launch.quantities import parse_seconds
from tfdist.strategies.options import option_name, option_text, variable_of

Decorator = Callable[[Callable[..., None]], Callable[..., None]]

_LONGEST_NEGATED = 16
"""Letters of an option that also has a --no- form; the help of longer ones would not fit into 80 columns."""


def option(
    flag: str,
    text: str,
    panel: str = OUTPUT,
    *,
    short: tuple[str, ...] = (),
    variable: str | None = None,
    complete: Callable[..., list[str]] | None = None,
    first: Callable[..., Any] | None = None,
    parser: Callable[[str], Any] | None = None,
) -> Any:
    """An option of one command.

    Args:
        flag: `--name`.
        text: its help.
        panel: of the help.
        short: other spellings.
        variable: replaces its environment variable; the help names it.
        complete: lists values for the shell, which offers those that begin with what is typed.
        first: called with the context and the value before the other options are read.
        parser: reads the value; by default Typer does, by its type.
    """
    return typer.Option(
        flag,
        *short,
        help=re.sub(r"\[(?=[a-z#/@])", r"\\[", text),  # rich would read it as markup
        rich_help_panel=panel,
        envvar=variable or variable_of(flag.partition("/")[0]),
        show_envvar=variable is not None,
        autocompletion=complete,
        callback=first,
        is_eager=first is not None,
        parser=parser,
    )


Port = Annotated[int | None, option("--port", "Port of each host's first task. Default: free ports.", SIZE)]
Json = Annotated[bool, option("--json", "Print the result as JSON in the last line of stdout.")]


Set = Annotated[
    list[str] | None,
    option(
        "--set",
        "Another key of a job file, as seed=1; 'tfdist strategies STRATEGY' lists them. Repeatable.",
        TRAIN,
        complete=lambda: [f"{key}=" for key in KEYS],
    ),
]


def annotation(row: Option) -> Any:
    """The annotation of a command's parameter for an option of the table."""
    negated = row.kind is bool and len(row.name) <= _LONGEST_NEGATED
    flag = f"{option_name(row.name)}/{option_name('no_' + row.name)}" if negated else option_name(row.name)
    short = ("-H",) if row.name == "hosts" else ()
    complete = (lambda: [*PRESETS]) if row.name == "preset" else None
    return Annotated[
        row.kind | None, option(flag, row.text, row.panel, short=short, complete=complete, parser=row.parser)
    ]


def seconds(flag: str, text: str, panel: str, variable: str | None = None) -> Any:
    """An option of one command for a positive duration: the type is Seconds."""
    return option(flag, text, panel, variable=variable, parser=lambda value: parse_seconds(value, flag))


def training_options(only: Collection[str] | None = None) -> Decorator:
    """Give a command the options of a training, or `only` some.

    Its parameter `choices` maps TrainingSpec's field names to the values given.
    """
    rows = {row.name: row for row in TRAINING if only is None or row.name in only}
    options = _annotations(rows.values())
    if any(name in KEYS for name in rows):
        options["set"] = Set

    def collect(ctx: typer.Context, values: Mapping[str, Any]) -> Mapping[str, Any]:
        chosen = _with_settings(ctx, values, rows)
        if only is not None:
            _refuse_others(ctx, rows)
        return {rows[name].field: rows[name].in_unit(value) for name, value in chosen.items()}

    return gather("choices", options, collect)


def _refuse_others(ctx: typer.Context, names: Collection[str]) -> None:
    """Refuse a key of --set that the command does not take. A variable may have it: it is for other commands."""
    for word in ctx.params.get("set") or ():
        key, value = read_setting(word)
        if key not in names and variable_of(key) not in os.environ:
            raise TfdistError(f"{option_text(key, value)}: has no effect with tfdist {ctx.info_name}; omit it")


def _with_settings(ctx: typer.Context, values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The values that were given, and those of --set that have one of these names."""
    settings = dict(map(read_setting, ctx.params.get("set") or ()))
    given = {name: value for name, value in {**values, **settings}.items() if value is not None}
    return {name: value for name, value in given.items() if name in names}


def host_options(without: Collection[str] = ()) -> Decorator:
    """Give a command the options about hosts; its parameter `selection` is the HostSelection that they mean."""

    def collect(ctx: typer.Context, values: Mapping[str, Any]) -> HostSelection:
        scheduler = scheduler_of(ctx)
        return select_hosts(values) if scheduler is None else scheduler.select(ctx, values)

    return gather("selection", _annotations(HOST_OPTIONS, without), collect)


def recovery_options() -> Decorator:
    """Give a command the options about checkpoints and restarts; its parameter `recovery` is what they mean."""
    return gather(
        "recovery",
        _annotations(RECOVERY_OPTIONS),
        lambda ctx, values: read_recovery(_with_settings(ctx, values, [row.name for row in RECOVERY_OPTIONS])),
    )


def timeout_options(without: Collection[str] = ()) -> Decorator:
    """Give a command the timeouts; its parameter `policy` is the Policy that they mean."""
    return gather("policy", _annotations(TIMEOUT_OPTIONS, without), lambda _, values: read_timeouts(values))


def _annotations(rows: Iterable[Option], without: Collection[str] = ()) -> dict[str, Any]:
    return {row.name: annotation(row) for row in rows if row.name not in (*without, *KEYS)}


def gather(
    parameter: str,
    options: Mapping[str, Any],
    collect: Callable[[typer.Context, Mapping[str, Any]], Any] = lambda _, values: values,
) -> Decorator:
    """Give a command `options` and pass their values, or `collect` of its context and them, to it as one `parameter`.

    Typer reads options from a signature, so the decorated command gets one that lists them in the place of `parameter`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in options.items()
        ]
        context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        wants_context = "ctx" in inspect.signature(command).parameters
        parameters = [] if wants_context else [context]
        for each in inspect.signature(command).parameters.values():
            parameters += added if each.name == parameter else [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

        @wraps(command)
        def wrapped(ctx: typer.Context, **values: Any) -> None:
            gathered = collect(ctx, {name: values.pop(name) for name in options})
            command(**{parameter: gathered}, **({"ctx": ctx} if wants_context else {}), **values)

        wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
        del wrapped.__wrapped__
        return wrapped

    return decorate


def refuse_tf_config() -> None:
    """Refuse a TF_CONFIG in the environment: every task would inherit it.

    Raises:
        TfdistError: it is set.
    """
    if "TF_CONFIG" in os.environ:
        raise TfdistError(
            f"TF_CONFIG is already set in the environment ({os.environ['TF_CONFIG'][:60]}...): unset it, "
            "or run the one task that it describes with 'tfdist launch --inherit tf-config'"
        )
