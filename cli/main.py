"""The command: which subcommands there are, and the one place where an error becomes a line and an exit code."""

import os
import re
from itertools import pairwise
from typing import Annotated

import typer
from typer.core import TyperCommand

import tfdist
from tfdist.cli import bench, doctor, launch, report, strategies, tf_config
from tfdist.cli.options import twin
from tfdist.launch.errors import ExitCode, TfdistError

_UsageError = typer.BadParameter.__bases__[0]


class Panelled(TyperCommand):
    """A command whose help is shown in panels. The list of commands itself is plain: it loads in half the time."""

    def __init__(self, *args: object, **values: object) -> None:
        super().__init__(*args, **{**values, "rich_markup_mode": "rich"})  # type: ignore[arg-type]


app = typer.Typer(
    name="tfdist",
    help="Run and measure TensorFlow's distributed training.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
# Options behind the user's program are the program's.
app.command("launch", cls=Panelled, context_settings={"allow_interspersed_args": False})(launch.launch)
app.command("bench", cls=Panelled)(bench.bench)
app.command("report", cls=Panelled)(report.report)
app.command("doctor", cls=Panelled)(doctor.doctor)
app.command("strategies", cls=Panelled)(strategies.strategies)
app.command("tf-config", cls=Panelled)(tf_config.tf_config)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tfdist {tfdist.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Run and measure TensorFlow's distributed training."""


def run(arguments: list[str]) -> int:
    """Run the command line `arguments` and return its exit code."""
    try:
        return int(app(arguments or ["--help"], prog_name="tfdist", standalone_mode=False) or 0)
    except TfdistError as error:
        return _complain(str(error), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted", ExitCode.INTERRUPTED)
    except OSError as error:
        return _complain(f"{error.strerror or error}: {error.filename or 'the output'}", 1)
    except typer.TyperException as error:
        sentence = error.format_message() if isinstance(error, _UsageError) else str(error)
        return _complain(_plain(sentence, arguments), ExitCode.USAGE) if sentence else int(ExitCode.USAGE)


def _plain(sentence: str, arguments: list[str]) -> str:
    """Typer's sentence with the value, which it leaves out, and without what is in no user's mind."""
    sentence = " ".join(re.sub(r" \(env var: '\w+'\)|Value error, ", "", sentence).split())
    invalid = re.match(r"Invalid value for '(--[\w-]+)'[^:]*: (.*)", sentence)
    if invalid is None:
        return sentence
    flag, reason = invalid.groups()
    after = dict(pairwise(arguments))
    joined = {word: value for word, _, value in (word.partition("=") for word in arguments)}
    return f"{flag} {after.get(flag) or joined.get(flag) or os.environ.get(twin(flag), '')}: {reason}"


def _complain(sentence: str, code: int) -> int:
    typer.echo(f"tfdist: {sentence}", err=True)
    return int(code)
