"""A run in another process, shown live from its folder."""

import re
import sys
import time
from itertools import chain
from typing import TextIO

from tfdist.cli.steps import Steps
from tfdist.launch.agents.messages import Heartbeat
from tfdist.launch.cluster import Task
from tfdist.launch.console.lines import LineOptions, PrefixedLines
from tfdist.launch.console.table import LiveTable
from tfdist.launch.console.terminal import can_redraw
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job, Program, TaskPlan
from tfdist.launch.runs.follow import POLL_S, RunFollower, wait_for_end
from tfdist.launch.runs.rundir import RunDir
from tfdist.launch.runs.state import read_run, tasks_of
from tfdist.models.plan import shape_of
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
