"""`tfdist stacks`."""

import sys
import time
from typing import Annotated

import typer

from tfdist.cli.run_argument import RUNS_DIR, RunName, RunsDir, argument
from tfdist.cli.show.steps import Steps
from tfdist.launch.agents.messages import Exited, StacksDumped
from tfdist.launch.errors import ExitCode, TfdistError
from tfdist.launch.runs.follow import POLL_S, RunFollower, TaskLog, step_of
from tfdist.launch.runs.launcher import request
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import find_run, read_run, tasks_of
from tfdist.launch.text import did_you_mean, shortened

ANSWER_S = 30.0
"""Time for the stacks of all tasks; an agent needs 21 s at most."""


def stacks(
    run: RunName,
    task: Annotated[str | None, argument("TASK", "Only this task, as worker-1.")] = None,
    runs_dir: RunsDir = RUNS_DIR,
) -> None:
    """Print what all tasks of a running job are doing now. The job continues.

    \b
    Examples:
      tfdist stacks last
      tfdist stacks last worker-1

    The Python stacks of each thread: written by the task itself if it is the built-in training or uses tfdist, else by
    py-spy where it is installed. Where it is, also the frames of C and C++, for which a process pauses for a moment.
    Then what each thread does in the kernel. All of it is added to the task's stacks.txt, beside its logs.

    The exit code is 0, or 1 if a task has not answered within 30 seconds.
    """
    run_dir = find_run(run, runs_dir)
    known = tasks_of(run_dir)
    if task is not None and task not in known:
        raise TfdistError(f"{task}: no such task in {run_dir.path.name}; {did_you_mean(task, known)}")
    wanted = known if task is None else [task]
    logs = {name: TaskLog(run_dir, name, "stacks") for name in wanted}
    for log in logs.values():
        while log.read():  # of an earlier request
            pass
    left = _ask(run_dir, set(wanted))
    for name, log in logs.items():
        text = b"".join(iter(log.read, b"")).decode(errors="replace")
        nothing = "no answer" if name in left else "not running"
        typer.echo(f"=== {name}\n{text.rstrip() or nothing}\n")
    if left:
        raise TfdistError(
            f"no answer from {shortened(sorted(left))}: check the host with 'tfdist doctor'", ExitCode.FAILED
        )


def _ask(run_dir: RunDir, wanted: set[str]) -> set[str]:
    """Ask the launcher for the stacks, and wait for them; returns the tasks that have not answered."""
    follower = RunFollower(run_dir)
    follower.skip_events()
    try:
        left = set(request(run_dir, "stacks")) & wanted
    except OSError:
        state = read_run(run_dir)
        why = f"it has ended ({state.state})" if state.ended else "its launcher does not answer"
        raise TfdistError(f"{run_dir.path.name}: no stacks: {why}; see 'tfdist logs'", ExitCode.FAILED) from None
    until = time.monotonic() + ANSWER_S
    with Steps(sys.stderr, patience_s=0.5) as steps:
        while left and time.monotonic() < until and not read_run(run_dir).ended:
            steps.show(f"waiting for {shortened(sorted(left))}")
            for message in follower.events(wanted=lambda line: not step_of(line)):
                left -= set(message.methods) if isinstance(message, StacksDumped) else set()
                left -= {message.task} if isinstance(message, Exited) else set()
            time.sleep(POLL_S / 5)
    return set() if read_run(run_dir).ended else left
