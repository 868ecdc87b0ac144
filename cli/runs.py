"""`tfdist runs`."""

import errno
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer
from rich.filesize import decimal

from tfdist.bench.folder import BenchPaths, printable, read_bench
from tfdist.bench.suites.arm import LONGEST_NAME
from tfdist.cli.options import Json, option
from tfdist.cli.run_argument import RUNS_DIR, AnyRunName, RunsDir
from tfdist.cli.show.output import agrees, columns_of
from tfdist.cli.show.past import show_end
from tfdist.cli.show.rows import Row, aligned
from tfdist.jobs.checkpoint_source import read_saved_spec
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.json_files import dumps, parse_bounded, read_json_lines, reason_of
from tfdist.launch.quantities import parse_seconds
from tfdist.launch.redact import redact_command, safe_text
from tfdist.launch.runs.state import (
    OldRun,
    Run,
    delete,
    find_run,
    list_runs,
    number_of_hosts,
    old_runs,
    read_run,
    unreadable,
)
from tfdist.launch.text import ago, counted, duration
from tfdist.launch.typed_json import from_json
from tfdist.models.record import RecordStatus


def prune_runs(runs_dir: Path, age: str, *, yes: bool, json: bool) -> None:
    """List the runs that ended longer than `age` ago, ask unless `yes`, and delete them.

    Raises:
        TfdistError: `age` is wrong, there is no terminal to ask on, or some runs cannot be deleted.
    """
    age_s = parse_seconds(age, "--prune")
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
        typer.echo(f"deleted {counted(len(deleted), 'run')}, freed {decimal(size)}", err=json)
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
    width = columns_of(sys.stderr if err else sys.stdout)
    typer.echo("\n".join(aligned([*map(_ended_row, found)], width)), err=err)
    if yes:
        return found
    holding = sum(run.has_checkpoints for run in found)
    note = f", {holding} of them with checkpoints" if holding else ""
    size = decimal(sum(run.size for run in found))
    question = f"delete {counted(len(found), 'run')} ({size}){note}?"
    refusal = f"--prune {age}: there is no terminal to ask on; add --yes to delete these runs"
    return found if agrees(question, refusal, err=err) else []


def _ended_row(run: OldRun) -> Row:
    holds = "checkpoints" if run.has_checkpoints else ""
    return {"run": run.run_dir.path.name, "ended": _started(run.ended), "size": decimal(run.size), "holds": holds}


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


LIMIT = 20
Limit = Annotated[int, option("--limit", "At most this many runs.", short=("-n",))]
Prune = Annotated[
    str | None,
    option("--prune", "Delete the runs that ended longer ago than this, as 30d: list them with their sizes, and ask."),
]
Yes = Annotated[bool, option("--yes", "Do not ask before --prune deletes runs.", short=("-y",))]


def runs(
    run: AnyRunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    limit: Limit = LIMIT,
    json: Json = False,
    prune: Prune = None,
    yes: Yes = False,
) -> None:
    """List the recent runs and benches, the newest first. Each has its state, size, command, and why it failed.

    With RUN, say how that run ended: its result or failure, its restarts, and which workers held the others up.

    \b
    Examples:
      tfdist runs
      tfdist runs -n 5
      tfdist runs last --json
      tfdist runs --runs-dir /data/runs --json
      tfdist runs --prune 30d

    The state is running, ok, failed, timeout, interrupted, refused (no task was started), lost (the launcher was
    killed), or unreadable (WHY says which file).

    --prune deletes only your own runs, and none that still runs or whose checkpoints a running one uses.
    """
    _check(run, limit, prune, yes)
    if run is not None:
        _show_one(read_run(find_run(run, runs_dir, others=True)), json=json)
        return
    if not runs_dir.is_dir() and runs_dir != RUNS_DIR:
        raise TfdistError(f"--runs-dir {runs_dir}: no such folder; choose the one that was given to 'tfdist launch'")
    if prune is not None:
        prune_runs(runs_dir, prune, yes=yes, json=json)
        return

    recent = list_runs(runs_dir)[:limit]
    if json:
        typer.echo(dumps({"format": 1, "runs": [_Entry.of(run).to_json() for run in recent]}))
        return
    rows = [*map(_row, recent), *(_benches() if runs_dir == RUNS_DIR else ())]
    if rows:
        rows.sort(key=lambda row: (row[0], row[1]["run"]), reverse=True)
        table = aligned([row for _, row in rows[:limit]], columns_of(sys.stdout), *_NARROWER)
        typer.echo("\n".join(table))
    else:
        typer.echo(f"no runs in {runs_dir} yet; 'tfdist launch' starts one")


def _show_one(run: Run, json: bool) -> None:
    if run.ended:
        show_end(run, json)
    elif json:
        typer.echo(dumps({"format": 1, **run.to_json()}))
    else:
        typer.echo(f"{run.name} is {run.state}, started {_started(run.started)}: 'tfdist logs {run.name} --follow'")


def _check(run: str | None, limit: int, prune: str | None, yes: bool) -> None:
    if run is not None and (prune is not None or limit != LIMIT):
        raise TfdistError(f"RUN {run}: --prune and --limit have no effect with it; omit them")
    if limit < 1:
        raise TfdistError(f"--limit {limit}: must be at least 1")
    if prune is None and yes:
        raise TfdistError("--yes: has no effect without --prune; omit it")
    if prune is not None and limit != LIMIT:
        raise TfdistError(f"--limit {limit}: has no effect with --prune; omit it")


_COLUMNS = ("run", "started", "state", "time", "hosts", "size", "what", "why")
_NARROWER = ("run", "started", "state", "time", "what", "why"), ("run", "state", "time", "size", "what", "why")
"""The columns for narrower terminals. Most names of runs have the time of the start, too."""
_MOST_WHAT = 1000
"""Characters of a command. Two runs may differ in its last word only."""


_PATIENCE_S = 1.0
"""Seconds for the folder of a run or bench in a list of many."""


@dataclass(frozen=True)
class _Entry:
    """A run in the list."""

    run: Run
    hosts: int = 0
    """0: unknown."""
    size: int | None = None
    """Bytes of all files; None: unknown."""
    what: str = ""

    @classmethod
    def of(cls, run: Run) -> "_Entry":
        """What the folder says. Whatever is in it, the other runs are listed."""
        try:
            return cls(run, number_of_hosts(run.run_dir), _size(run.run_dir.path), _what(run))
        except Exception as error:
            return cls(unreadable(run, error))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**self.run.to_json(), "what": self.what, "bytes": self.size}


def _row(run: Run) -> tuple[float, Row]:
    """The start, seconds since 1970, and the texts."""
    entry = _Entry.of(run)
    time_s = "" if run.wall_s is None else duration(run.wall_s)
    run = entry.run
    texts = (str(run.state), time_s, str(entry.hosts or ""), _decimal(entry.size), entry.what)
    every = run.name, _started(run.started), *texts, " ".join(run.reason.split())
    return run.started, dict(zip(_COLUMNS, every, strict=True))


def _benches() -> Iterator[tuple[float, Row]]:
    """Start and row, like that of `_row`, of each bench in this folder; they have no launcher that could be asked."""
    for file in Path("bench_results").glob("*/bench.json"):
        started = 0.0
        try:
            started = file.lstat().st_mtime
            texts = _bench_texts(file.parent, file.stat().st_mtime)
        except Exception as error:  # whatever is in one folder, the others are listed
            texts = ("", "", "", "", " ".join(f"cannot be read: {reason_of(error)}"[:200].split()))
        every = safe_text(str(file.parent)), _started(started), "bench", *texts
        yield started, dict(zip(_COLUMNS, every, strict=True))


def _bench_texts(root: Path, started: float) -> tuple[str, ...]:
    """Time, hosts, size, command and turns of a bench."""
    bench = read_bench(root)
    paths = BenchPaths(root)
    if bench is None:
        raise TfdistError(f"{paths.bench.name} is missing")
    until = time.monotonic() + _PATIENCE_S
    done = sum(1 for line in _lines(paths.turns, until) if line)
    time_s = duration(paths.turns.stat().st_mtime - started) if done else ""
    # to parse all lines of a long bench takes minutes
    lines = [line for line in _lines(paths.records, until) if b'"refused"' in line]
    refused = {arm for arm, status in map(_arm_and_status, lines) if status == RecordStatus.REFUSED}
    turns = counted(sum(run.arm not in refused for run in bench.plan), "turn")
    return time_s, str(len(bench.hosts)), _decimal(_size(root)), bench.command[:_MOST_WHAT], f"{done} of {turns}"


class _Line(TypedDict, total=False):
    arm: str
    status: str


def _arm_and_status(line: bytes) -> tuple[str, str]:
    """The arm and the status in a line of records.jsonl; empty if it is no record."""
    with suppress(ValueError):
        values = from_json(parse_bounded(line), _Line)
        return printable(values.get("arm", ""), LONGEST_NAME), values.get("status", "")
    return "", ""


def _lines(path: Path, until: float) -> Iterator[bytes]:
    """The lines of a file of JSON lines; none without the file.

    Raises:
        OSError: it cannot be read, or not until then.
        ValueError: a line is too long.
    """
    with suppress(FileNotFoundError):
        for line in read_json_lines(path):
            if time.monotonic() > until:
                raise TimeoutError(errno.ETIMEDOUT, f"{path.name} takes more than {_PATIENCE_S:g} s", str(path))
            yield line


def _decimal(size: int | None) -> str:
    return "?" if size is None else decimal(size)


def _started(at: float) -> str:
    at = min(max(at, 0.0), float(1 << 37))  # as clocks can show it
    return f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(at))} ({ago(time.time() - at)})"


def _what(run: Run) -> str:
    """The strategy, and the user's own program."""
    saved = read_saved_spec(run.run_dir)
    if saved is None:
        return ""
    command = redact_command([word[:2000] for word in saved.command[:20]])
    return f"{saved.spec.strategy} {command}"[:_MOST_WHAT].rstrip()


def _size(folder: Path) -> int | None:
    """Bytes of all files; None if they are too many to count. A running job may remove some meanwhile."""
    size = 0
    until = time.monotonic() + _PATIENCE_S
    for parent, _, names in os.walk(folder):
        for name in names:
            if time.monotonic() > until:
                return None
            with suppress(OSError):
                size += Path(parent, name).lstat().st_size
    return size
