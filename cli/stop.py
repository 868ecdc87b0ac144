"""`tfdist stop`."""

import sys
import time
from typing import Annotated

import typer

from tfdist.cli.options import option
from tfdist.cli.run_argument import RUNS_DIR, RunName, RunsDir
from tfdist.cli.show.steps import Steps
from tfdist.launch.agents.inbox import REPEAT_S
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.runs.follow import POLL_S, wait_for_launcher
from tfdist.launch.runs.launcher import request_stop, running_tasks
from tfdist.launch.runs.state import Run, RunState, find_run, read_run
from tfdist.launch.text import duration, shortened

Kill = Annotated[bool, option("--kill", "Kill the tasks at once, without the grace period.")]


def stop(run: RunName, runs_dir: RunsDir = RUNS_DIR, kill: Kill = False) -> None:
    """Stop a run and wait until it has ended. Its tasks get SIGTERM, and SIGKILL after the grace period.

    \b
    Examples:
      tfdist stop last
      tfdist stop 20260101T120000Z-launch
      tfdist stop last --kill

    The exit code is 0 if the run has ended. Ctrl-C ends only the waiting; the run is stopped all the same.
    """
    run_dir = find_run(run, runs_dir)
    before = read_run(run_dir)
    if before.state is RunState.LOST:
        raise TfdistError(
            f"{before.name}: its launcher was killed, so there is nothing to stop; agents end their tasks without a "
            "launcher, on other hosts within --launcher-timeout",
            ExitCode.FAILED,
        )
    if before.ended:
        typer.echo(f"{before.name} has already ended: {_how(before)}")
        return
    try:
        after = _stop(before, kill)
    except KeyboardInterrupt:
        typer.echo(f"{before.name} is being stopped; 'tfdist runs' shows when it has ended", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    typer.echo(f"{after.name}: {_how(after) if after.ended else 'ended, but its outcome could not be written'}")


def _stop(run: Run, kill: bool) -> Run:
    while read_run(run.run_dir).state is RunState.STARTING:  # its launcher is not known yet
        time.sleep(POLL_S)
    request_stop(run.run_dir)
    if kill:
        time.sleep(2 * REPEAT_S)  # without a socket, the requests are signals
        request_stop(run.run_dir)
    with Steps(sys.stderr, patience_s=0.5) as steps:
        while (now := read_run(run.run_dir)).state is RunState.RUNNING:
            tasks = running_tasks(run.run_dir)
            steps.show(f"stopping {shortened(tasks)}" if tasks else "waiting for the launcher")
            time.sleep(POLL_S)
        wait_for_launcher(run.run_dir)
    return now


def _how(run: Run) -> str:
    after = "" if run.wall_s is None else f" after {duration(run.wall_s)}"
    return f"{run.state}{after}" + (f", {run.reason}" if run.reason else "")
