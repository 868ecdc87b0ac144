"""`tfdist logs`."""

import codecs
import os
import sys
from collections.abc import Callable
from itertools import chain
from typing import Annotated

import typer

from tfdist.cli.options import Json, option
from tfdist.cli.run_argument import RUNS_DIR, RunName, RunsDir, argument
from tfdist.cli.show.past import follow as follow_run
from tfdist.launch.agents.messages import Event, Output, StreamName
from tfdist.launch.console.lines import LineOptions, PrefixedLines
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.runs.follow import STREAMS, RunFollower, TaskLog, step_of, wait_for_end
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import find_run, read_run, tasks_of
from tfdist.launch.text import did_you_mean


def logs(
    run: RunName,
    task: Annotated[
        str | None,
        argument("TASK", "Only this task, for example worker-1: byte for byte in a file or pipe."),
    ] = None,
    runs_dir: RunsDir = RUNS_DIR,
    follow: Annotated[
        bool,
        option(
            "--follow",
            "Continue until the run has ended: on a terminal as its launcher shows it, with the outcome.",
            short=("-f",),
        ),
    ] = False,
    stderr: Annotated[bool, option("--stderr", "Only stderr. Default: stdout of one TASK, both of all tasks.")] = False,
    json: Json = False,
) -> None:
    """Print what the tasks of a run wrote. Includes TensorFlow's own messages; the steps follow at the end.

    With --follow, it attaches to any running launch. Ctrl-C detaches, with exit code 130; the run continues. The exit
    code is then that of the run.

    \b
    Examples:
      tfdist logs last
      tfdist logs last --follow
      tfdist logs last worker-1 --stderr
      tfdist logs 20260101T120000Z-launch worker-0 > worker-0.txt
    """
    run_dir = find_run(run, runs_dir, others=True)
    if json and (task is not None or not follow):
        raise TfdistError("--json: prints the outcome of all tasks at the end; use it with --follow and without TASK")
    try:
        if follow and task is None:
            raise typer.Exit(follow_run(run_dir, ("stderr",) if stderr else STREAMS, json=json))
        if task is None:
            _show_all(run_dir, stderr)
        elif follow:
            wait_for_end(run_dir, _one_task(run_dir, task, stderr, follow))
        else:
            _one_task(run_dir, task, stderr, follow)(True)
        sys.stdout.flush()
        if follow:
            code = read_run(run_dir).exit_code
            raise typer.Exit(ExitCode.FAILED if code is None else code)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:  # as in `tfdist logs last | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_all(run_dir: RunDir, stderr: bool) -> None:
    follower = RunFollower(run_dir, ("stderr",) if stderr else STREAMS)
    at = 0.0
    lines = PrefixedLines(sys.stdout, sys.stdout, LineOptions(verbose=True), lambda: at)
    for message in chain(follower.output(True), () if stderr else follower.events(True, _shown_line())):
        if isinstance(message, Output | Event):  # an Event: a step
            at = message.time if isinstance(message, Event) else at
            lines.handle(message)
    lines.end()


def _shown_line() -> Callable[[str], bool]:
    """Which lines of events.jsonl are shown: in a file or pipe, only the steps of one task (`PrefixedLines`)."""
    first = ""

    def shown(line: str) -> bool:
        nonlocal first
        task = step_of(line)
        first = first or task
        return sys.stdout.isatty() or task in ("", first)

    return shown


def _one_task(run_dir: RunDir, task: str, stderr: bool, follow: bool) -> Callable[[bool], None]:
    tasks = dict.fromkeys([*tasks_of(run_dir), *(name for _, name in run_dir.attempts())])  # also those of a lost host
    if task not in tasks and (tasks or not follow or read_run(run_dir).ended):
        raise TfdistError(f"TASK {task}: " + (did_you_mean(task, tasks) if tasks else "the run has started no tasks"))
    stream: StreamName = "stderr" if stderr else "stdout"
    log = TaskLog(run_dir, task, stream)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    lines = PrefixedLines(sys.stdout, sys.stdout, LineOptions(verbose=True, prefix=False))

    def show(ended: bool) -> None:
        while data := log.read():
            if sys.stdout.isatty():
                lines.handle(Output(task, stream, decoder.decode(data)))
            else:
                sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        if ended:
            lines.end()

    return show
