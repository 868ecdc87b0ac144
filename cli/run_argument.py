"""The argument RUN of the commands about one run, and the folder of runs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tfdist.cli.options import option
from tfdist.launch.runs.state import LAST, list_runs
from tfdist.strategies.options import variable_of

RUNS_DIR = Path("runs")
RunsDir = Annotated[Path, option("--runs-dir", "Folder that holds the folders of runs.")]


def _runs(incomplete: str) -> list[str]:
    runs_dir = Path(os.environ.get(variable_of("runs_dir"), RUNS_DIR))
    return [name for name in (LAST, *(run.name for run in list_runs(runs_dir))) if name.startswith(incomplete)]


RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="The run: last, its folder's name or a unique part of it, or a path.",
        show_default=False,
        autocompletion=_runs,
    ),
]
