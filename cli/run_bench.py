"""Runs the bench that the options of `tfdist bench` describe, and prints its report."""

import shlex
import sys
from typing import TYPE_CHECKING, TextIO

import typer

from tfdist.bench.folder import BenchPaths
from tfdist.bench.options import BenchOptions
from tfdist.bench.progress import progress_on
from tfdist.bench.reading import read_folder
from tfdist.bench.runner import RunnerHooks
from tfdist.bench.session import Session, prepare, run_session
from tfdist.cli.host_selection import HostSelection
from tfdist.cli.show_bench import announce, limits, refusals, show_plan, show_traces
from tfdist.cli.timeout_options import timeout_words
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.doctor.links import Links
from tfdist.launch.doctor.preflight import measure_neighbours
from tfdist.launch.json_files import dumps
from tfdist.launch.policy import Policy
from tfdist.launch.text import counted

if TYPE_CHECKING:
    from tfdist.bench.report.build import Report


def run_bench(
    options: BenchOptions, selection: HostSelection, policy: Policy, *, dry_run: bool, json: bool, quiet: bool
) -> int:
    """Check the bench, run it and report on it; returns the exit code.

    Raises:
        TfdistError: an option or the suite is wrong.
    """
    stream = sys.stderr if json else sys.stdout
    with selection.connected(policy, quiet=quiet) as fleet:
        session = prepare(options, selection.raw_machines(fleet))
        if dry_run:
            show_plan(session, json)
            return 0
        if not quiet:
            announce(session, stream)
        links = _measure_links(fleet, session)
        if not quiet:
            for (one, other), link in links.items():
                typer.echo(f"{one.name} -> {other.name}: {link}", file=stream)
            for text in limits(session, links):
                typer.echo(text, file=stream)
    code = _execute(session, links, policy, stream, quiet)
    if session.traces.folders and not quiet:
        show_traces(session, stream)
    report = _report(session, stream, quiet)
    _show_rest(session, selection, policy)
    if report and not (json and quiet):
        typer.echo(f"report: {BenchPaths(session.root).page}", file=stream)
    if json:
        content = report.to_json() if report else {}
        typer.echo(dumps({"exit_code": code, "folder": str(session.root), **content}))
    return code


def _measure_links(fleet: Fleet | None, session: Session) -> Links:
    """The links between neighbouring hosts that some arm uses."""
    most = max((len(machines) for machines in session.arms.machines.values()), default=1)
    if fleet is None or most < 2:
        return {}
    return measure_neighbours(fleet, list(fleet.channels)[:most])


def _execute(session: Session, links: Links, policy: Policy, stream: TextIO, quiet: bool) -> int:
    with progress_on(stream, quiet) as progress:
        return run_session(session, RunnerHooks(progress, links=links, policy=policy))


def _report(session: Session, stream: TextIO, quiet: bool) -> "Report | None":
    """Report on the records that the folder has now, even if the bench was interrupted; None: nothing was measured."""
    folder = read_folder(session.root, "")
    if not folder.records and not folder.unreadable:
        typer.echo("no turn was measured: no report", err=True)
        return None
    from tfdist.bench.report.build import make_report
    from tfdist.bench.report.write import write_report
    from tfdist.cli.show_report import list_unreadable, show

    report = make_report([session.root])
    write_report(report, session.root)
    list_unreadable(report)
    if not quiet:
        show(report, stream)
    return report


def _show_rest(session: Session, selection: HostSelection, policy: Policy) -> None:
    """Say how to measure the turns that are left, and which arms were refused, --quiet or not."""
    left = session.count_left()
    if left:
        words = ["tfdist", "bench", "--resume", str(session.root), *selection.options, *timeout_words(policy)]
        total = counted(len(session.planned), "turn")
        typer.echo(f"{left} of {total} left; to continue: {shlex.join(words)}", err=True)
    if session.arms.refused:
        number = f"{len(session.arms.refused)} of {counted(len(session.bench.suite.arms), 'arm')}"
        typer.echo(f"refused: {number}: {'; '.join(refusals(session))}", err=True)
