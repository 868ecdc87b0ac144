"""Runs the measurement that the options of `tfdist collectives` describe, and prints its figures."""

import sys
from pathlib import Path
from typing import TextIO

import typer

from tfdist.bench.collectives.plan import CollectiveOptions, CollectivePlan, plan_collectives
from tfdist.bench.collectives.results import Sweep, read_collectives
from tfdist.bench.collectives.run import run_collectives
from tfdist.bench.collectives.table import to_json
from tfdist.bench.progress import progress_on
from tfdist.bench.report.environment import environment_of
from tfdist.bench.runner import RunnerHooks
from tfdist.cli.host_selection import HostSelection
from tfdist.cli.show_collectives import announce, show, show_plan
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.doctor.links import Links
from tfdist.launch.doctor.preflight import measure_neighbours
from tfdist.launch.errors import ExitCode
from tfdist.launch.json_files import dumps
from tfdist.launch.policy import Policy
from tfdist.launch.text import counted


def run(
    options: CollectiveOptions, selection: HostSelection, policy: Policy, *, dry_run: bool, json: bool, quiet: bool
) -> int:
    """Check the measurement, run it and report on it; returns the exit code.

    Raises:
        TfdistError: an option is wrong, or no arm can run.
    """
    stream = sys.stderr if json else sys.stdout
    with selection.connected(policy, quiet=quiet) as fleet:
        plan = plan_collectives(options, selection.raw_machines(fleet))
        if dry_run:
            show_plan(plan, json)
            return ExitCode.SUCCESS
        if not quiet:
            announce(plan, stream)
        links = _measure_links(fleet, plan)
    with progress_on(stream, quiet, "GB/s bus bandwidth of the largest size") as progress:
        code = run_collectives(plan, RunnerHooks(progress, links=links, policy=policy), environment_of)
    return _report(plan, code, stream, json=json, quiet=quiet)


def _measure_links(fleet: Fleet | None, plan: CollectivePlan) -> Links:
    if fleet is None or len(fleet.channels) < 2:
        return {}
    return measure_neighbours(fleet, list(fleet.channels))


def _report(plan: CollectivePlan, code: int, stream: TextIO, *, json: bool, quiet: bool) -> int:
    """Report on what was measured, even if it was interrupted; a wrong result makes the command fail."""
    sweep = read_collectives(plan.root)
    if not sweep.lines:
        typer.echo(f"no turn was measured: no report; logs: {plan.root / 'runs'}", err=True)
    else:
        report_on(sweep, plan.root, stream, json=json, quiet=quiet)
    turns = len({(line.arm, line.round) for line in sweep.lines})
    if code > 128:
        typer.echo(f"interrupted: {turns} of {counted(len(plan.runs), 'turn')} were measured", err=True)
    if code == ExitCode.SUCCESS and any(line.wrong for line in sweep.lines):
        code = ExitCode.FAILED
    if json:
        typer.echo(dumps({"exit_code": code, "folder": str(plan.root), **to_json(sweep)}))
    return code


def report_on(sweep: Sweep, out: Path, stream: TextIO, *, json: bool, quiet: bool) -> Path:
    """Write the report of a sweep into `out` and show its figures; returns the path of its page.

    Raises:
        TfdistError: nothing was measured, or `out` is not writable.
    """
    from tfdist.bench.report.collectives_page import write_collectives

    path = write_collectives(sweep, out)
    if not quiet:
        show(sweep, stream)
    if not (json and quiet):
        typer.echo(f"report: {path}" if quiet else f"\nreport: {path}", file=stream)
    return path


def report_folder(root: Path, out: Path | None, *, json: bool) -> None:
    """`tfdist report` on a folder of collectives.

    Raises:
        TfdistError: it is not readable, nothing was measured, or the folder of the report is not writable.
    """
    sweep = read_collectives(root)
    path = report_on(sweep, out or root, sys.stderr if json else sys.stdout, json=json, quiet=False)
    if json:
        typer.echo(dumps({**to_json(sweep), "report": str(path)}))
