"""`tfdist attach`: a run in another process, shown live from its folder."""

import re
import shlex
import sys
import time
from itertools import chain
from typing import Annotated, TextIO

import typer

from tfdist.bench.reading import read_records
from tfdist.cli.options import Json, option
from tfdist.cli.run_argument import RUNS_DIR, RunName, RunsDir
from tfdist.cli.show_outcome import show_outcome
from tfdist.cli.steps import Steps
from tfdist.launch.agents.messages import Heartbeat
from tfdist.launch.cluster import Task
from tfdist.launch.console.lines import LineOptions, PrefixedLines
from tfdist.launch.console.table import LiveTable
from tfdist.launch.console.terminal import can_redraw
from tfdist.launch.errors import ExitCode
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job, Program, TaskPlan
from tfdist.launch.json_files import dumps
from tfdist.launch.redact import safe_text
from tfdist.launch.runs.find import find_run
from tfdist.launch.runs.follow import POLL_S, RunFollower, wait_for_end, wait_for_launcher
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import Run, read_outcome, read_run, tasks_of
from tfdist.models.plan import shape_of
from tfdist.models.record import Record
from tfdist.models.saved_spec import read_saved_spec
from tfdist.strategies.choice import StrategyChoice

LAST_LINES = 10
"""Lines of each log, and steps of each task, shown at first."""


def watch(run_dir: RunDir, out: TextIO, verbose: bool) -> PrefixedLines:
    """Show the run until it has ended; returns the console that shows it."""
    with Steps(sys.stderr) as steps:
        steps.show("waiting for the tasks to start")
        while not tasks_of(run_dir) and not read_run(run_dir).ended:
            time.sleep(POLL_S)
    follower = RunFollower(run_dir)
    follower.skip_to_tail(LAST_LINES)
    clock = _Clock()
    with _console(run_dir, out, verbose, clock) as console:
        for message in follower.events():
            clock.behind_s = max(0.0, time.time() - getattr(message, "time", time.time()))
            console.handle(message)
        clock.behind_s = 0.0

        def show(ended: bool) -> None:
            for message in chain(follower.output(ended), follower.events(ended), (Heartbeat(time.time()),)):
                console.handle(message)

        wait_for_end(run_dir, show)
    return console


class _Clock:
    """Monotonic time; while past messages are shown, that of the message."""

    behind_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() - self.behind_s


def _console(run_dir: RunDir, out: TextIO, verbose: bool, clock: _Clock) -> PrefixedLines:
    """The console that a launch chooses: a live table for the built-in training on a terminal, else prefixed lines."""
    saved = read_saved_spec(run_dir)
    if not can_redraw(out) or saved is None or saved.command:
        return PrefixedLines(out, sys.stderr, LineOptions(verbose))
    return LiveTable(_job(run_dir, saved.spec), out, LineOptions(verbose), clock)


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


Verbose = Annotated[bool, option("--verbose", "Show TensorFlow's start-up messages.", short=("-v",))]


def attach(run: RunName, runs_dir: RunsDir = RUNS_DIR, json: Json = False, verbose: Verbose = False) -> None:
    """Show a run as its launcher does. It prints the last lines of each task, what they write, and the outcome.

    \b
    Examples:
      tfdist attach last
      tfdist attach 20260101T120000Z-launch

    Any running launch can be attached to, whether it was started with --detach or in another terminal. Ctrl-C detaches
    again, with exit code 130; the run continues. At its end, the exit code is that of the run.
    """
    run_dir = find_run(run, runs_dir)
    console = None
    if not read_run(run_dir).ended:
        try:
            console = _watch(run_dir, json, verbose)
        except KeyboardInterrupt:
            typer.echo(f"\ndetached; the run continues: 'tfdist stop {run_dir.path}' ends it", err=True)
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    raise typer.Exit(_show_end(read_run(run_dir), json, console))


def _watch(run_dir: RunDir, json: bool, verbose: bool) -> PrefixedLines:
    console = watch(run_dir, sys.stderr if json else sys.stdout, verbose)
    wait_for_launcher(run_dir)
    return console


def _show_end(run: Run, json: bool, console: PrefixedLines | None) -> int:
    outcome = read_outcome(run.run_dir)
    if outcome is not None:
        record, again = _record(run.run_dir), _command(run.run_dir)
        is_shown = None if console is None else console.shows
        show_outcome(outcome, record, quiet=False, json=json, again=again, is_shown=is_shown)
        return outcome.exit_code
    typer.echo(safe_text(f"tfdist: {run.reason}\n  logs:  {run.run_dir.path}"), err=True)
    code = ExitCode.FAILED if run.exit_code is None else run.exit_code
    if json:
        typer.echo(dumps({"format": 1, "status": str(run.state), "exit_code": int(code), "reason": run.reason}))
    return code


def _record(run_dir: RunDir) -> Record | None:
    """The record of the built-in training, if there is one that can be read."""
    records, _ = read_records(run_dir.records)
    return records[-1] if records else None


def _command(run_dir: RunDir) -> str:
    """The command of the launch; empty if it is not known."""
    try:
        with run_dir.commands.open(encoding="utf-8", errors="replace") as file:
            return safe_text(shlex.join(["tfdist", *shlex.split(file.readline(1 << 16))[1:]]))
    except (OSError, ValueError):
        return ""
