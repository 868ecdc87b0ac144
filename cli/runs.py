"""`tfdist runs`."""

import shutil
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from tfdist.cli.options import Json, option
from tfdist.cli.run_argument import RUNS_DIR, RunsDir
from tfdist.launch.errors import TfdistError
from tfdist.launch.json_files import dumps
from tfdist.launch.text import duration

if TYPE_CHECKING:
    from tfdist.launch.runs.state import Run

Limit = Annotated[int, option("--limit", "At most this many runs.", short=("-n",))]
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def runs(runs_dir: RunsDir = RUNS_DIR, limit: Limit = 20, json: Json = False) -> None:
    """List the recent runs, the newest first. Each has its state, how long it ran, and why it failed.

    \b
    Examples:
      tfdist runs
      tfdist runs -n 5
      tfdist runs --runs-dir /data/runs --json

    The state is running, ok, failed, timeout, interrupted, refused (no task was started), or lost (the launcher was
    killed).
    """
    from tfdist.launch.runs.find import list_runs

    if limit < 1:
        raise TfdistError(f"--limit {limit}: must be at least 1")
    if not runs_dir.is_dir() and runs_dir != RUNS_DIR:
        raise TfdistError(f"--runs-dir {runs_dir}: no such folder; choose the one that was given to 'tfdist launch'")
    recent = list_runs(runs_dir)[:limit]
    if json:
        typer.echo(dumps({"format": 1, "runs": [run.to_json() for run in recent]}))
    elif recent:
        typer.echo("\n".join(_table(recent, _width())))
    else:
        typer.echo(f"no runs in {runs_dir} yet; 'tfdist launch' starts one")


def _width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _table(recent: list["Run"], width: int | None) -> list[str]:
    """The rows, aligned; the reasons are shortened to `width` columns."""
    rows = [("run", "started", "state", "time", "why"), *map(_row, recent)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = (
        "  ".join((*(text.ljust(size) for text, size in zip(row[:4], widths, strict=True)), row[4])).rstrip()
        for row in rows
    )
    return [line if width is None or len(line) <= width else line[: width - 1] + "…" for line in lines]


def _row(run: "Run") -> tuple[str, str, str, str, str]:
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
    age = ago(time.time() - run.started)
    why = " ".join(run.reason.split())
    return run.name, f"{started} ({age})", str(run.state), "" if run.wall_s is None else duration(run.wall_s), why


def ago(seconds: float) -> str:
    """`5 min ago`, in the largest unit that fits."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"
