"""One `tfdist launch` from its request to its exit code: plan, connect, plan on those hosts, run, show."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TextIO

import typer

from tfdist.cli.show.detached import BackgroundLines
from tfdist.cli.show.outcome import show_outcome, traces_line
from tfdist.cli.show.plan import show_plan
from tfdist.cli.show.steps import connected
from tfdist.jobs.elastic import elastic_hosts
from tfdist.jobs.host_selection import HostSelection
from tfdist.jobs.plan import Planned, check_before_connecting, output_tasks, plan
from tfdist.jobs.request import Request
from tfdist.jobs.requeue import requeue, without_sigterm
from tfdist.jobs.resume_source import claimed, resume_command
from tfdist.jobs.run import Run, policy_of, run_planned
from tfdist.launch.agents.inbox import OnMessage
from tfdist.launch.console.lines import LineOptions, PrefixedLines, can_redraw
from tfdist.launch.console.notebook import NotebookTable, in_notebook
from tfdist.launch.console.table import LiveTable
from tfdist.launch.diagnosis.history import Outcome
from tfdist.launch.policy import Policy
from tfdist.launch.runs.background import Background
from tfdist.launch.runs.rundir import RunDir, check_runs_dir, create_run_dir
from tfdist.launch.schedulers.table import kill_wait_s
from tfdist.launch.supervision import termination_log
from tfdist.launch.supervision.metrics import MetricsOptions
from tfdist.launch.supervision.run_tasks import NOBODY
from tfdist.launch.this_command import this_command
from tfdist.models.record import Record


@dataclass(frozen=True)
class RunOptions:
    """How a run is printed and kept."""

    name: str
    runs_dir: Path
    json: bool
    lines: LineOptions
    """Its `tasks` are not set yet: the request's `output` names them."""
    metrics: MetricsOptions
    policy: Policy
    burn_s: float | None = None
    """Let the hosts compute and exchange for this time before, and refuse slow ones; None: do not."""
    requeue: int | None = None
    """Put the Slurm job back into its queue after exit code 42, at most this many times; None: never."""

    @property
    def run_dir(self) -> str:
        """Where the run's folder will be."""
        return str(self.runs_dir.absolute() / f"TIME-{self.name}")

    @property
    def out(self) -> TextIO:
        """The stream for people; with --json stdout holds only the JSON."""
        return sys.stderr if self.json else sys.stdout


@dataclass(frozen=True)
class FinishedJob:
    """A job that has run."""

    planned: Planned
    options: RunOptions
    run_dir: RunDir
    console: PrefixedLines
    outcome: Outcome
    record: Record | None
    """That of the built-in training; None: of a program of the user."""


def run_launch(
    request: Request, selection: HostSelection, options: RunOptions, background: Background | None = None
) -> int:
    """Plan the job, run it and print its outcome; returns the exit code.

    Args:
        request: defines the job.
        selection: its hosts.
        options: how the run is printed and kept.
        background: this process detaches once the tasks are started.

    Raises:
        TfdistError: no task was started.
    """
    job = run_job(request, selection, options, partial(console_for, background=background))
    return 0 if job is None else _show(job)


def run_job(
    request: Request,
    selection: HostSelection,
    options: RunOptions,
    console_of: Callable[[Planned, RunOptions, RunDir], PrefixedLines],
    listeners: Mapping[str, OnMessage] = NOBODY,
) -> FinishedJob | None:
    """Plan the job and run it; or print the plan, if that is what was asked for: None.

    Args:
        request: defines the job.
        selection: its hosts.
        options: how the run is printed and kept.
        console_of: prints the lines of the job.
        listeners: called with every message, by name.

    Raises:
        TfdistError: no task was started.
    """
    quiet = options.lines.quiet
    check_runs_dir(options.runs_dir)
    policy = replace(options.policy, kill_wait_s=kill_wait_s(os.environ))
    check_before_connecting(request, selection.imagined(request.devices))
    with claimed(request), connected(selection, policy, quiet=quiet) as fleet:
        machines = selection.machines(fleet, request.devices)
        planned = plan(request, machines)
        for line in (*planned.notes, *(f"warning: {warning}" for warning in planned.warnings)):
            if not quiet:
                typer.echo(line, file=options.out)
        if request.dry_run:
            show_plan(planned, fleet, json=options.json, verbose=options.lines.verbose)
            return None
        if options.burn_s is not None:
            from tfdist.cli.doctor import check_speed  # it imports rich

            hellos = {} if fleet is None else fleet.hellos
            check_speed(hellos, selection.per_host, options.burn_s, options.out, quiet=quiet)
        run_dir = create_run_dir(options.runs_dir, options.name)
        planned = plan(replace(request, run_dir=str(run_dir.path.absolute())), machines, before=planned)
        policy = policy_of(policy, planned, options.metrics)
        console = console_of(planned, options, run_dir)
        hosts = elastic_hosts(planned, selection, policy)
        run = Run(run_dir, policy, console, options.metrics, fleet, hosts, listeners)
        outcome, record = run_planned(planned, run)
    return FinishedJob(planned, options, run_dir, console, outcome, record)


def console_for(
    planned: Planned, options: RunOptions, run_dir: RunDir, background: Background | None = None
) -> PrefixedLines:
    """A live table for the built-in training on a terminal, and for every job in a notebook; else prefixed lines."""
    if background is not None:
        background.expect((plan.task.name for plan in planned.job.plans), run_dir)
        return BackgroundLines(background, options.out, sys.stderr, options.lines)
    lines = replace(options.lines, tasks=output_tasks(planned.request.output, planned.job), run_dir=run_dir)
    if in_notebook() and not lines.quiet:
        return NotebookTable(planned.job, options.out, lines)
    if not planned.request.own and not lines.quiet and can_redraw(options.out):
        return LiveTable(planned.job, options.out, lines)
    return PrefixedLines(options.out, sys.stderr, lines)


def _show(job: FinishedJob) -> int:
    """Print the outcome, leave it for Kubernetes, requeue a Slurm job; returns the exit code."""
    planned, options, run_dir, outcome, record = job.planned, job.options, job.run_dir, job.outcome, job.record
    own, resumed = planned.request.own, planned.request.recovery.resume
    resume = "" if resumed else resume_command(this_command()[1:], run_dir.path, planned.checkpointing, own=own)
    show_outcome(
        outcome, record, quiet=options.lines.quiet, json=options.json, resume=resume, is_shown=job.console.shows
    )
    if run_dir.traces.is_dir() and not options.lines.quiet:
        typer.echo(traces_line(run_dir.traces.absolute()), file=options.out)
    code, reason = (outcome.exit_code, outcome.reason) if record is None else (record.exit_code, record.reason)
    termination_log.write(termination_log.short_form(outcome, int(code), reason))
    if options.requeue is not None:
        with without_sigterm():
            line = requeue(outcome, code, options.requeue, os.environ)
            if line:
                typer.echo(f"tfdist: {line}", err=True)
    return code
