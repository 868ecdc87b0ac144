"""`tfdist logs RUN --follow`: a run in another process, shown live from its folder until its outcome."""

import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TextIO

import typer

from tfdist.bench.reading import read_records
from tfdist.cli.show.outcome import failure_block, show_outcome
from tfdist.cli.show.steps import Steps
from tfdist.jobs.checkpoint_source import read_saved_spec
from tfdist.jobs.tasks import shape_of
from tfdist.launch.agents.messages import Heartbeat, StreamName
from tfdist.launch.cluster import Task
from tfdist.launch.console.lines import LineOptions, PrefixedLines, can_redraw
from tfdist.launch.console.table import LiveTable
from tfdist.launch.diagnosis.outcome_lines import Label, OutcomeLine
from tfdist.launch.errors import ExitCode
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job, Program, TaskPlan
from tfdist.launch.json_files import dumps, open_regular
from tfdist.launch.redact import safe_text
from tfdist.launch.runs.follow import POLL_S, STREAMS, RunFollower, wait_for_end
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import Run, read_outcome, read_run, tasks_of
from tfdist.strategies.choice import StrategyChoice

LAST_LINES = 10
"""Lines of each log, and steps of each task, shown at first."""


def watch(run_dir: RunDir, out: TextIO, streams: Sequence[StreamName] = STREAMS) -> PrefixedLines:
    """Show the run until it has ended; returns the console that shows it."""
    with Steps(sys.stderr) as steps:
        steps.show("waiting for the tasks to start")
        while not tasks_of(run_dir) and not read_run(run_dir).ended:
            time.sleep(POLL_S)
    follower = RunFollower(run_dir, tuple(streams))
    if out.isatty():
        follower.skip_to_tail(LAST_LINES)
    behind_s = 0.0  # while past messages are shown, it is the time of the message
    with _console(run_dir, out, lambda: time.monotonic() - behind_s) as console:
        for message in follower.events():
            behind_s = max(0.0, time.time() - getattr(message, "time", time.time()))
            console.handle(message)
        behind_s = 0.0

        def show(ended: bool) -> None:
            for message in chain(follower.output(ended), follower.events(ended), (Heartbeat(time.time()),)):
                console.handle(message)

        wait_for_end(run_dir, show)
    return console


def _console(run_dir: RunDir, out: TextIO, clock: Callable[[], float]) -> PrefixedLines:
    """The console that a launch chooses: a live table for the built-in training on a terminal, else prefixed lines."""
    saved = read_saved_spec(run_dir)
    if not can_redraw(out) or saved is None or saved.command:
        return PrefixedLines(out, sys.stderr if out.isatty() else out, LineOptions(verbose=not out.isatty()), clock)
    return LiveTable(_job(run_dir, saved.spec), out, LineOptions(), clock)


def _job(run_dir: RunDir, spec: StrategyChoice) -> Job:
    """The job as far as a display needs it: the tasks with their hosts, and the roles."""
    roles = shape_of(spec, evaluator=True).roles
    program = Program((), {}, "")
    plans = []
    for name, host in tasks_of(run_dir).items():
        role, _, index = name.rpartition("-")
        if role in roles and re.fullmatch("[0-9]{1,9}", index):
            plans.append(TaskPlan(Task(role, int(index)), Host(host), program, (), None))
    return Job(tuple(plans), roles)


def follow(run_dir: RunDir, streams: Sequence[StreamName], *, json: bool) -> int:
    """Show what the tasks write, as the launcher does, and how the run ended; returns its exit code.

    On a terminal it starts with the last lines, elsewhere with the first ones.
    """
    console = None
    if not read_run(run_dir).ended or not sys.stdout.isatty():
        try:
            console = watch(run_dir, sys.stderr if json else sys.stdout, streams)
        except KeyboardInterrupt:
            typer.echo(f"\nthe run continues: 'tfdist stop {run_dir.path}' ends it", err=True)
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    return show_end(read_run(run_dir), json, console)


def show_end(run: Run, json: bool, console: PrefixedLines | None = None) -> int:
    """Show how a run ended, except for what this console has shown; returns its exit code."""
    outcome = read_outcome(run.run_dir)
    if outcome is not None:
        records, _ = read_records(run.run_dir.records)  # of the built-in training, if they can be read
        records = [record for record in records if not record.incarnation]  # else it is of a bench, and has no windows
        record, again = records[-1] if records else None, _command(run.run_dir)
        is_shown = None if console is None else console.shows
        show_outcome(outcome, record, quiet=False, json=json, again=again, is_shown=is_shown)
        return outcome.exit_code
    logs = OutcomeLine(Label.LOGS, str(run.run_dir.path))
    typer.echo(safe_text(failure_block(run.reason, [logs])), err=True)
    code = ExitCode.FAILED if run.exit_code is None else run.exit_code
    if json:
        typer.echo(dumps({"format": 1, "status": str(run.state), "exit_code": int(code), "reason": run.reason}))
    return code


def _command(run_dir: RunDir) -> str:
    """The command of the launch; empty if it is not known."""
    try:
        with open_regular(run_dir.commands) as file:
            line = file.readline(1 << 16).decode(errors="replace")
        return safe_text(shlex.join(["tfdist", *shlex.split(line)[1:]]))
    except (OSError, ValueError):
        return ""
