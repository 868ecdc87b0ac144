"""What `tfdist launch` does once its options are read."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import typer

from tfdist.cli.host_selection import HostSelection
from tfdist.cli.plan_launch import LaunchOptions, PlannedLaunch, plan_request
from tfdist.cli.show_outcome import outcome_json, show_failure, show_success
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.console import LiveTable, PrefixedLines, Quiet
from tfdist.launch.diagnose import Outcome, Status
from tfdist.launch.doctor.preflight import preflight
from tfdist.launch.dry_run import describe_plan, with_free_ports
from tfdist.launch.environment import redact_argument
from tfdist.launch.json_files import dumps, save_json
from tfdist.launch.policy import Policy
from tfdist.launch.run import launch as run_job
from tfdist.launch.rundir import RunDir, create_run_dir
from tfdist.models.record import Record, RecordStatus
from tfdist.models.run import run_training
from tfdist.models.spec import TrainingSpec


@dataclass(frozen=True)
class RunOptions:
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


def carry_out(asked: LaunchOptions, selection: HostSelection, policy: Policy, options: RunOptions) -> int:
    """Plan the job, run it, tell how it ended; its exit code.

    Raises:
        TfdistError: no task was started.
    """
    selection.try_out(lambda machines: plan_request(asked, machines), asked.devices)
    with selection.connected(policy) as fleet:
        request = plan_request(asked, selection.machines(fleet, asked.devices))
        if not options.quiet:
            announce(request, options.out)
        if options.dry_run:
            show_plan(request, fleet, options.json)
            return 0
        run_dir = create_run_dir(options.runs_dir, options.name)
        outcome, record = run_and_keep(request, run_dir, policy, console_for(request, options), fleet)
    conclude(outcome, record, run_dir, options)
    return record.exit_code if record is not None else outcome.exit_code


def announce(request: PlannedLaunch, out: TextIO) -> None:
    """What was decided for the user, and what may surprise them."""
    for line in (*request.notes, *(f"warning: {warning}" for warning in request.warnings)):
        typer.echo(line, file=out)


def show_plan(request: PlannedLaunch, fleet: Fleet | None, as_json: bool) -> None:
    """Every task, as it would be started; on other hosts after their preflight."""
    if fleet is None:
        job = with_free_ports(request.job)
    else:
        job, notes = preflight(request.job, fleet, needs_tensorflow=not request.argv)
        for note in notes:
            typer.echo(f"warning: {note.host}: {note.text}", err=True)
    plans = [describe_plan(job, plan) for plan in job.plans]
    if as_json:
        typer.echo(dumps(plans))
        return
    for plan in plans:
        cores = ", ".join(map(str, plan["cores"])) or "any"
        typer.echo(f"\n{plan['task']} on {plan['host']}, cores: {cores}, in {plan['cwd']}")
        for key, value in plan["env"].items():
            typer.echo(f"  {key}={value}")
        typer.echo(f"  {plan['command']}")


def console_for(request: PlannedLaunch, options: RunOptions) -> PrefixedLines:
    """A live table for the built-in training on a terminal, else prefixed lines."""
    if options.quiet:
        return Quiet(options.out, sys.stderr)
    if options.out.isatty() and not request.argv:
        return LiveTable(request.job, options.out, options.verbose)
    return PrefixedLines(options.out, sys.stderr, options.verbose)


def run_and_keep(
    request: PlannedLaunch, run_dir: RunDir, policy: Policy, console: PrefixedLines, fleet: Fleet | None
) -> tuple[Outcome, Record | None]:
    """Run the job and write its spec and, for the built-in training, its record."""
    save_json(run_dir.spec, {"command": [redact_argument(word) for word in request.argv], **request.spec.to_json()})
    job, spec = request.job, request.spec
    with console:
        if not isinstance(spec, TrainingSpec):
            return run_job(job, run_dir, policy, console.handle, fleet=fleet), None
        arm = str(spec.strategy)
        outcome, record = run_training(job, spec, run_dir, policy, console.handle, fleet=fleet, arm=arm)
    save_json(run_dir.records / f"{arm}.json", record.to_json())
    return outcome, record


def conclude(outcome: Outcome, record: Record | None, run_dir: RunDir, options: RunOptions) -> None:
    """The last thing printed."""
    if outcome.status is not Status.OK:
        show_failure(outcome, run_dir, sys.stderr)
    elif record is not None and record.status is not RecordStatus.OK:
        typer.echo(f"tfdist: {record.reason}; logs: {outcome.run_dir}", err=True)
    elif not options.quiet:
        show_success(outcome, record, options.out)
    if options.json:
        typer.echo(dumps(outcome_json(outcome, record)))
