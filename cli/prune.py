"""`tfdist runs --prune`: delete the runs that ended long ago."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from tfdist.cli.durations import parse_seconds
from tfdist.cli.show_rows import aligned
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import dumps
from tfdist.launch.runs.find import list_runs
from tfdist.launch.runs.prune import OldRun, delete, old_runs
from tfdist.launch.text import ago, counted, plain
from tfdist.models.saved_spec import read_saved_spec


def prune_runs(runs_dir: Path, age: str, *, yes: bool, json: bool) -> None:
    """List the runs that ended longer than `age` ago, ask unless `yes`, and delete them.

    Raises:
        TfdistError: `age` is wrong, there is no terminal to ask on, or some runs cannot be deleted.
    """
    age_s = parse_seconds(age, "--prune") or 0.0
    if age.strip()[-1].isdigit():  # nobody means seconds
        raise TfdistError(f"--prune {age}: has no unit; did you mean {age.strip()}d?")
    found = old_runs(runs_dir, age_s, _used_folders(runs_dir))
    agreed = _agreed(found, age, yes, err=json) if found else []
    if not found:
        typer.echo(f"no runs of yours in {runs_dir} ended more than {age} ago", err=json)
    elif not agreed:
        typer.echo("nothing was deleted", err=json)
    # Those that have changed meanwhile are no longer the same.
    again = old_runs(runs_dir, age_s, _used_folders(runs_dir)) if agreed else []
    deleted, errors = _delete([run for run in again if run in agreed])
    size = sum(run.size for run in deleted)
    if agreed:
        typer.echo(f"deleted {counted(len(deleted), 'run')}, freed {_size_text(size)}", err=json)
    if errors:
        raise TfdistError(f"{'; '.join(errors)}; delete the rest yourself", ExitCode.FAILED)
    if json:
        names = [run.run_dir.path.name for run in deleted]
        typer.echo(dumps({"format": 1, "deleted": names, "freed_bytes": size}))


def _used_folders(runs_dir: Path) -> list[str]:
    """The folders of checkpoints of the runs that have not ended."""
    saved = [read_saved_spec(run.run_dir) for run in list_runs(runs_dir) if not run.ended]
    return [each.checkpointing.folder for each in saved if each is not None and each.checkpointing is not None]


def _agreed(found: Sequence[OldRun], age: str, yes: bool, err: bool) -> Sequence[OldRun]:
    """The runs, once they are listed and the user agrees; else none."""
    typer.echo("\n".join(aligned([("run", "ended", "size", "holds"), *map(_row, found)])), err=err)
    if yes:
        return found
    if sys.stdin is None or not sys.stdin.isatty():
        raise TfdistError(f"--prune {age}: there is no terminal to ask on; add --yes to delete these runs")
    holding = sum(run.has_checkpoints for run in found)
    note = f", {holding} of them with checkpoints" if holding else ""
    size = _size_text(sum(run.size for run in found))
    typer.echo(f"delete {counted(len(found), 'run')} ({size}){note}? [y/N] ", nl=False, err=err)
    return found if sys.stdin.readline().strip().casefold() in ("y", "yes") else []


def _row(run: OldRun) -> tuple[str, ...]:
    ended = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.ended))
    age = ago(time.time() - run.ended)
    holds = "checkpoints" if run.has_checkpoints else ""
    return plain(run.run_dir.path.name), f"{ended} ({age})", _size_text(run.size), holds


def _delete(runs: Sequence[OldRun]) -> tuple[list[OldRun], list[str]]:
    """Delete the runs; returns those that are deleted, and why others are not."""
    deleted, errors = [], []
    for run in runs:
        try:
            delete(run)
            deleted.append(run)
        except OSError as error:
            errors.append(f"{run.run_dir.path}: {error.strerror or error} ({error.filename})")
    return deleted, errors


def _size_text(size: float) -> str:
    """`12 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
