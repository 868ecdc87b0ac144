"""`tfdist runs`."""

import shutil
import sys
import time
from typing import Annotated

import typer

from tfdist.cli.options import Json, option
from tfdist.cli.prune import prune_runs
from tfdist.cli.run_argument import RUNS_DIR, RunsDir
from tfdist.cli.show_rows import aligned
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import dumps
from tfdist.launch.runs.find import list_runs
from tfdist.launch.runs.state import Run
from tfdist.launch.text import ago, duration

LIMIT = 20
Limit = Annotated[int, option("--limit", "At most this many runs.", short=("-n",))]
Prune = Annotated[
    str | None,
    option("--prune", "Delete the runs that ended longer ago than this, as 30d: list them with their sizes, and ask."),
]
Yes = Annotated[bool, option("--yes", "Do not ask before --prune deletes runs.", short=("-y",))]


def runs(
    runs_dir: RunsDir = RUNS_DIR, limit: Limit = LIMIT, json: Json = False, prune: Prune = None, yes: Yes = False
) -> None:
    """List the recent runs, the newest first. Each has its state, how long it ran, and why it failed.

    \b
    Examples:
      tfdist runs
      tfdist runs -n 5
      tfdist runs --runs-dir /data/runs --json
      tfdist runs --prune 30d

    The state is running, ok, failed, timeout, interrupted, refused (no task was started), or lost (the launcher was
    killed).

    --prune deletes only your own runs, and none that still runs or whose checkpoints a running one uses.
    """
    _check(limit, prune, yes)
    if not runs_dir.is_dir() and runs_dir != RUNS_DIR:
        raise TfdistError(f"--runs-dir {runs_dir}: no such folder; choose the one that was given to 'tfdist launch'")
    if prune is not None:
        prune_runs(runs_dir, prune, yes=yes, json=json)
        return

    recent = list_runs(runs_dir)[:limit]
    if json:
        typer.echo(dumps({"format": 1, "runs": [run.to_json() for run in recent]}))
    elif recent:
        typer.echo("\n".join(_table(recent, _width())))
    else:
        typer.echo(f"no runs in {runs_dir} yet; 'tfdist launch' starts one")


def _check(limit: int, prune: str | None, yes: bool) -> None:
    if limit < 1:
        raise TfdistError(f"--limit {limit}: must be at least 1")
    if prune is None and yes:
        raise TfdistError("--yes: has no effect without --prune; omit it")
    if prune is not None and limit != LIMIT:
        raise TfdistError(f"--limit {limit}: has no effect with --prune; omit it")


def _width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _table(recent: list[Run], width: int | None) -> list[str]:
    """The rows, aligned; the reasons are shortened to `width` columns."""
    lines = aligned([("run", "started", "state", "time", "why"), *map(_row, recent)])
    return [line if width is None or len(line) <= width else line[: width - 1] + "…" for line in lines]


def _row(run: Run) -> tuple[str, str, str, str, str]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
    age = ago(time.time() - run.started)
    why = " ".join(run.reason.split())
    return run.name, f"{started} ({age})", str(run.state), "" if run.wall_s is None else duration(run.wall_s), why
