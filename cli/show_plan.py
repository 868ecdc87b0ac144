"""The plan of a launch, as --dry-run prints it."""

import os
from collections.abc import Mapping
from json import loads
from textwrap import indent
from typing import Any

import typer

from tfdist.cli.plan_launch import PlannedLaunch
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.doctor.preflight import preflight
from tfdist.launch.dry_run import describe_plan, with_free_ports
from tfdist.launch.json_files import dumps
from tfdist.models.checkpointing import Checkpointing
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice

INTERNAL = (TrainingSpec.VARIABLE, StrategyChoice.VARIABLE, Checkpointing.VARIABLE)
"""Long variables that only tfdist reads."""


def show_plan(planned: PlannedLaunch, fleet: Fleet | None, *, json: bool, verbose: bool) -> None:
    """Print every task as it would be started; with other hosts, after their preflight."""
    if fleet is None:
        job = with_free_ports(planned.job)
    else:
        job, notes = preflight(planned.job.sharing(os.environ), fleet, needs_tensorflow=not planned.argv)
        for note in notes:
            typer.echo(f"warning: {note.host}: {note.text}", err=True)
    tasks = [describe_plan(job, plan) for plan in job.plans]
    if json:
        typer.echo(dumps(tasks))
        return
    for task in tasks:
        _show_task(task, verbose)


def _show_task(task: Mapping[str, Any], verbose: bool) -> None:
    cores = ", ".join(map(str, task["cores"])) or "any"
    typer.echo(f"\n{task['task']} on {task['host']}, cores: {cores}, in {task['cwd']}")
    env = dict(task["env"])
    tf_config = env.pop("TF_CONFIG", None)
    if tf_config is not None:
        typer.echo(indent(f"TF_CONFIG={dumps(loads(tf_config), indent=2)}", "  "))
    for name, value in env.items():
        if verbose or name not in INTERNAL:
            typer.echo(f"  {name}={value}")
    typer.echo(f"  {task['command']}")
