"""How a command takes arguments and tables of options; RUN, the argument of those about one run, and --runs-dir."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from tfdist.cli.options import option, seconds
from tfdist.jobs.options import Seconds
from tfdist.launch.runs.state import LAST, list_runs
from tfdist.strategies.options import variable_of


def argument(metavar: str, text: str, complete: Callable[[], list[str]] | None = None) -> Any:
    """An argument of one command, with its help; `complete` lists values for the shell."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, autocompletion=complete)


def option_rows(panel: str, **rows: tuple[Any, ...]) -> dict[str, Any]:
    """The annotations of options, by name; the value of an option that is not given is None.

    Args:
        panel: of the help.
        rows: the type, the help and, if there are any, more arguments of `option`.
    """
    annotations = {}
    for name, (kind, text, *more) in rows.items():
        read = seconds if kind is Seconds else option
        annotations[name] = Annotated[kind | None, read(f"--{name.replace('_', '-')}", text, panel, **dict(*more))]
    return annotations


RUNS_DIR = Path("runs")
RunsDir = Annotated[Path, option("--runs-dir", "Folder that holds the folders of runs.")]


def _runs() -> list[str]:
    runs_dir = Path(os.environ.get(variable_of("runs_dir"), RUNS_DIR))
    return [LAST, *(run.name for run in list_runs(runs_dir))]


_RUN = argument("RUN", "The run: last, its folder's name or a unique part of it, or a path.", complete=_runs)
RunName = Annotated[str, _RUN]
AnyRunName = Annotated[str | None, _RUN]
"""A RUN that may be omitted."""
