"""What `tfdist launch` does once its options are read."""

import json as _json
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

import typer

from tfdist.bench.folder import finite, save_record
from tfdist.bench.job import record_of
from tfdist.bench.record import Record
from tfdist.cli.outcome import outcome_json, show_failure, show_success
from tfdist.cli.request import Asked, Request, plan_request
from tfdist.cli.where import Where
from tfdist.launch.console import Lines, LiveTable, Quiet
from tfdist.launch.diagnose import Outcome, Status
from tfdist.launch.environment import word_shown
from tfdist.launch.fleet import Fleet
from tfdist.launch.policy import Policy
from tfdist.launch.preflight import preflight
from tfdist.launch.run import describe_plan, dry_ports
from tfdist.launch.run import launch as run_job
from tfdist.launch.rundir import RunDir, create_run_dir, save_json


@dataclass(frozen=True)
class Manner:
    """How a run is shown and kept."""

    name: str
    runs_dir: Path
    dry_run: bool
    json: bool
    quiet: bool
    verbose: bool

    @property
    def out(self) -> TextIO:
        """Where people read; with --json stdout is for its last line."""
        return sys.stderr if self.json else sys.stdout


def carry_out(asked: Asked, where: Where, policy: Policy, manner: Manner) -> int:
    """Plan the job, run it, tell how it ended; its exit code.

    Raises:
        TfdistError: no task was started.
    """
    where.try_out(lambda machines: plan_request(asked, machines), asked.devices)
    with where.connected(policy) as fleet:
        request = plan_request(asked, where.machines(fleet, asked.devices))
        if not manner.quiet:
            announce(request, manner.out)
        if manner.dry_run:
            show_plan(request, fleet, manner.json)
            return 0
        run_dir = create_run_dir(manner.runs_dir, manner.name)
        outcome, record = run_and_keep(request, run_dir, policy, console_for(request, manner), fleet)
    conclude(outcome, record, run_dir, manner)
    return record.exit_code if record is not None else outcome.exit_code


def announce(request: Request, out: TextIO) -> None:
    """What was decided for the user, and what may surprise them."""
    for line in (*request.notes, *(f"warning: {warning}" for warning in request.warnings)):
        typer.echo(line, file=out)


def show_plan(request: Request, fleet: Fleet | None, as_json: bool) -> None:
    """Every task, as it would be started; on other hosts after their preflight."""
    if fleet is None:
        job = dry_ports(request.job)
    else:
        job, notes = preflight(request.job, fleet, needs_tensorflow=not request.argv)
        for note in notes:
            typer.echo(f"warning: {note.host}: {note.text}", err=True)
    plans = [describe_plan(job, plan) for plan in job.plans]
    if as_json:
        typer.echo(_json.dumps(plans))
        return
    for plan in plans:
        cores = ", ".join(map(str, plan["cores"])) or "any"
        typer.echo(f"\n{plan['task']} on {plan['host']}, cores: {cores}, in {plan['cwd']}")
        for key, value in plan["env"].items():
            typer.echo(f"  {key}={value}")
        typer.echo(f"  {plan['command']}")


def console_for(request: Request, manner: Manner) -> Lines:
    """A live table for the built-in training on a terminal, else prefixed lines."""
    if manner.quiet:
        return Quiet(manner.out, sys.stderr)
    if manner.out.isatty() and not request.argv:
        return LiveTable(request.job, manner.out, manner.verbose)
    return Lines(manner.out, sys.stderr, manner.verbose)


def run_and_keep(
    request: Request, run_dir: RunDir, policy: Policy, console: Lines, fleet: Fleet | None
) -> tuple[Outcome, Record | None]:
    """Run the job and write its spec and, for the built-in training, its record."""
    save_json(run_dir.spec, {"command": [word_shown(word) for word in request.argv], **request.spec.to_json()})
    started = datetime.now(timezone.utc)
    with console:
        outcome = run_job(request.job, run_dir, policy, console.hear, fleet=fleet, needs_tensorflow=not request.argv)
    if request.argv:
        return outcome, None
    record = record_of(
        outcome, request.spec, request.job.measuring, arm=str(request.spec.strategy), round=0, started=started
    )
    save_record(run_dir.records / f"{record.arm}.json", record)
    return outcome, record


def conclude(outcome: Outcome, record: Record | None, run_dir: RunDir, manner: Manner) -> None:
    """The last thing printed."""
    if outcome.status is not Status.OK:
        show_failure(outcome, run_dir, sys.stderr)
    elif record is not None and record.status != Status.OK:
        typer.echo(f"tfdist: {record.reason}; logs: {outcome.run_dir}", err=True)
    elif not manner.quiet:
        show_success(outcome, record, manner.out)
    if manner.json:
        typer.echo(_json.dumps(finite(outcome_json(outcome, record))))
