"""A run in another process, shown live from its folder."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from tfdist.cli.steps import Steps
from tfdist.launch.agents.messages import Event, Heartbeat, Message
from tfdist.launch.cluster import Task
from tfdist.launch.console.lines import PrefixedLines
from tfdist.launch.console.table import LiveTable
from tfdist.launch.console.terminal import can_redraw
from tfdist.launch.follow import POLL_S, RunFollower, wait_for_end
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import Job, Program, TaskPlan
from tfdist.launch.rundir import RunDir
from tfdist.launch.runs import read_run, tasks_of
from tfdist.models.plan import shape_of
from tfdist.models.spec import TrainingSpec

LAST_LINES = 10
"""Of each log, shown at first."""


def watch(run_dir: RunDir, out: TextIO, verbose: bool) -> None:
    """Show the run until it has ended."""
    with Steps(sys.stderr) as steps:
        steps.show("waiting for the tasks to start")
        while not tasks_of(run_dir) and not read_run(run_dir).ended:
            time.sleep(POLL_S)
    follower = RunFollower(run_dir)
    follower.skip_to_tail(LAST_LINES)
    with _console(run_dir, out, verbose) as console:
        for message in _latest(follower.events()):
            console.handle(message)

        def show(ended: bool) -> None:
            for message in (*follower.output(ended), *follower.events(ended), Heartbeat(time.time())):
                console.handle(message)

        wait_for_end(run_dir, show)


def _latest(messages: Iterator[Message]) -> list[Message]:
    """The messages without the steps before the last one of each task."""
    every = list(messages)
    last = {message.task: message for message in every if isinstance(message, Event) and _is_step(message)}
    return [message for message in every if not _is_step(message) or any(message is each for each in last.values())]


def _is_step(message: Message) -> bool:
    return isinstance(message, Event) and message.event.get("event") == "step"


def _console(run_dir: RunDir, out: TextIO, verbose: bool) -> PrefixedLines:
    """As a launch chooses it: a live table for the built-in training on a terminal, else prefixed lines."""
    spec = _read(run_dir.spec)
    if not can_redraw(out) or not isinstance(spec, dict) or spec.get("command"):
        return PrefixedLines(out, sys.stderr, verbose)
    return LiveTable(_job(run_dir, spec), out, verbose)


def _job(run_dir: RunDir, spec: dict[str, Any]) -> Job:
    """The job as far as a display needs it: the tasks with their hosts, and the roles."""
    values = {key: value for key, value in spec.items() if key != "command"}
    roles = shape_of(TrainingSpec.from_json(values)).roles
    program = Program((), {}, "")
    plans = []
    for name, host in tasks_of(run_dir).items():
        role, _, index = name.rpartition("-")
        plans.append(TaskPlan(Task(role, int(index)), Host(host), program, (), None))
    return Job(tuple(plans), roles)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
