"""The outcome of a launch, as text and as JSON."""

import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

import typer

from tfdist.launch.diagnosis.history import Outcome, Status
from tfdist.launch.diagnosis.outcome_lines import Label, OutcomeLine, lines_of, straggler_lines
from tfdist.launch.json_files import dumps
from tfdist.launch.redact import redact_command
from tfdist.launch.text import counted, plain, replace_surrogates
from tfdist.launch.this_command import this_command
from tfdist.models.record import RankRecord, Record, RecordStatus
from tfdist.models.throughput import throughput
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import StrategyName

IsShown = Callable[[str, Sequence[str]], bool]
"""Whether these last lines of a task are on the screen already."""


def show_outcome(
    outcome: Outcome,
    record: Record | None,
    *,
    quiet: bool,
    json: bool,
    again: str | None = None,
    resume: str = "",
    is_shown: IsShown | None = None,
) -> None:
    """Print how a launch ended.

    Args:
        outcome: of the job.
        record: of the built-in training.
        quiet: print nothing after a success.
        json: print the JSON, too.
        again: the command that runs the job again; empty: unknown. By default this one.
        resume: the command that continues it from its last checkpoint, if there is one.
        is_shown: whether these last lines of a task are on the screen already; None: nothing is.
    """
    if outcome.status is not Status.OK:
        _show_failure(outcome, again, resume, is_shown)
    elif record is not None and record.status is not RecordStatus.OK:
        typer.echo(plain(f"tfdist: {record.reason}; logs: {outcome.run_dir}"), err=True)
    elif not quiet:
        _show_success(outcome, record, sys.stderr if json else sys.stdout)
    if outcome.status is Status.OK:
        for warning in outcome.warnings:
            typer.echo(plain(f"warning: {warning}"), err=True)
    if json:
        typer.echo(dumps(outcome_json(outcome, record)))


def outcome_json(outcome: Outcome, record: Record | None) -> dict[str, Any]:
    """Plain JSON values: the outcome, the run folder, and the results of the built-in training."""
    result: dict[str, Any] = {
        "format": 1,
        "status": str(record.status if record is not None else outcome.status),
        "exit_code": record.exit_code if record is not None else outcome.exit_code,
        "reason": record.reason if record is not None else outcome.reason,
        "culprit": outcome.culprit,
        "culprits": list(outcome.culprits),
        "casualties": dict(outcome.casualties),
        "hints": list(outcome.hints),
        "wall_s": round(outcome.wall_s, 3),
        "run_dir": outcome.run_dir,
        "attempts": [asdict(attempt) for attempt in outcome.attempts],
        "stragglers": [asdict(each) for each in outcome.stragglers],
        "not_restarted": outcome.not_restarted,
        "tasks": {
            name: {"exit_code": exit.code, "peak_memory_bytes": exit.peak_memory_bytes, "cpu_s": round(exit.cpu_s, 3)}
            for name, exit in outcome.exits.items()
        },
    }
    if record is not None and record.status is RecordStatus.OK:
        result["images_per_s"] = throughput(record) if _has_windows(record) else None
        result["loss"] = {rank.task: _loss(rank) for rank in record.ranks}
        result["accuracy"] = record.ranks[0].accuracy
        result["evaluations"] = [asdict(evaluation) for evaluation in record.evaluations]
        result["updates_applied"] = record.ranks[0].updates_applied
    return result


def _show_success(outcome: Outcome, record: Record | None, out: TextIO) -> None:
    """Print the duration, the results of the built-in training, and the run folder."""
    restarts = len(outcome.attempts) - 1
    after = f" after {counted(restarts, 'restart')}" if restarts > 0 else ""
    parts = [f"done in {outcome.wall_s:.1f} s{after}", *([] if record is None else _results(record))]
    stragglers = (f"  {line}" for line in straggler_lines(outcome.stragglers))
    lines = [", ".join(parts) + f"; kept in {outcome.run_dir}", *stragglers]
    typer.echo(plain("\n".join(lines)), file=out)


def _results(record: Record) -> list[str]:
    leader = CATALOG[StrategyName(record.spec["strategy"])].leader
    whole_job = leader is not None or len(record.ranks) == record.spec["workers"]
    if not _has_windows(record):
        parts = [f"all {record.ranks[0].resumed_at:,} steps had been trained before"]
    else:
        parts = [f"{throughput(record):,.1f} images/s ({'the whole job' if whole_job else 'this task alone'})"]
    losses = sorted({f"{loss:.4f}" for rank in record.ranks if (loss := _loss(rank)) is not None})
    parts += [f"loss {' / '.join(losses)}"] if losses else []
    accuracy = record.ranks[0].accuracy
    return parts + ([f"accuracy {accuracy:.3f} on held-out examples"] if accuracy is not None else [])


def _has_windows(record: Record) -> bool:
    """Whether steps were timed; not if it continued from the checkpoint of the last step."""
    return all(rank.windows for rank in record.ranks)


def _loss(rank: RankRecord) -> float | None:
    return rank.windows[-1].loss if rank.windows else None


def _show_failure(outcome: Outcome, again: str | None, resume: str, is_shown: IsShown | None) -> None:
    """Print to stderr who failed first and why, the traceback, what to do, how others ended, and the commands."""
    again = redact_command(this_command()) if again is None else again
    commands = (OutcomeLine(Label.AGAIN, again), OutcomeLine(Label.RESUME, resume))
    lines = [*lines_of(outcome), *(line for line in commands if line.text)]
    if outcome.culprit is None or (is_shown and is_shown(outcome.culprit, outcome.log)):
        lines = [line for line in lines if line.label is not Label.LOG]
    typer.echo(plain(f"\n{failure_block(outcome.reason, lines)}"), err=True)


def failure_block(reason: str, lines: Iterable[OutcomeLine]) -> str:
    """What a terminal shows of a failure: the sentence, and below it these lines."""
    return "\n".join([f"tfdist: {reason}", *(f"  {_indented(line)}" for line in lines)])


def _indented(line: OutcomeLine) -> str:
    """The line. The texts after most labels begin below each other."""
    width = len(Label.AGAIN) if line.label.endswith(":") else 0
    text = replace_surrogates(line.text) if line.label is Label.LOG else line.text
    return f"{line.label:<{width}} {text}"


def traces_line(folder: Path) -> str:
    """What reads the traces in this folder."""
    return f"traces: {shlex.join(['tensorboard', '--logdir', str(folder)])} (with tensorboard-plugin-profile)"
