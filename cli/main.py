"""The `tfdist` command: its subcommands, and the one place where an error becomes a message and an exit code."""

import os
from typing import Annotated

import typer

import tfdist
from tfdist.cli.command import Commands, usage_sentence
from tfdist.cli.options import variable_of
from tfdist.cli.output import finish_output
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import dumps
from tfdist.launch.redact import safe_text

app = typer.Typer(
    name="tfdist",
    cls=Commands,
    rich_markup_mode=None,  # plain help for the list of commands: rich takes longer to load
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"tfdist {tfdist.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Run and measure TensorFlow's distributed training.

    'tfdist COMMAND --help' shows the options of a command, with examples.
    """


def run(arguments: list[str]) -> int:
    """Run the command line `arguments` and return its exit code."""
    try:
        code = _run(arguments)
    finally:
        error = finish_output()
    if error is None or isinstance(error, BrokenPipeError) or code != ExitCode.SUCCESS:
        return code  # a reader that has closed the pipe, as `head` does, has read enough
    return _fail_to_print(error, arguments)


def _run(arguments: list[str]) -> int:
    try:
        return int(app(arguments or ["--help"], prog_name="tfdist", standalone_mode=False) or 0)
    except TfdistError as error:
        return _fail(str(error), error.exit_code, arguments)
    except OSError as error:
        return _fail_to_print(error, arguments)
    except typer.TyperException as error:
        return _fail(usage_sentence(error, arguments), ExitCode.USAGE, arguments)


def _fail_to_print(error: OSError, arguments: list[str]) -> int:
    fix = "check the path and its permissions" if error.filename else "free some space, or write to another place"
    what = error.filename or "the output"
    return _fail(f"{what}: {error.strerror or error}; {fix}", ExitCode.FAILED, arguments)


def _fail(sentence: str, code: int, arguments: list[str]) -> int:
    sentence = safe_text(sentence)
    typer.echo(f"tfdist: {sentence}", err=True)
    if _wants_json(arguments):
        status = _STATUSES.get(code, "failed")
        typer.echo(dumps({"format": 1, "status": status, "exit_code": int(code), "reason": sentence}))
    return int(code)


_STATUSES: dict[int, str] = {
    ExitCode.SUCCESS: "ok",
    ExitCode.USAGE: "refused",
    ExitCode.HOST_LOST: "refused",
    ExitCode.INTERRUPTED: "interrupted",
}
"""Nothing was started, as in a record's status."""


def _wants_json(arguments: list[str]) -> bool:
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options or os.environ.get(variable_of("json"), "").lower() in (
        "1",
        "true",
        "yes",
        "on",
        "t",
        "y",
    )
