"""The plan of a launch: --dry-run."""

import os
from json import loads
from textwrap import indent

import typer

from tfdist.jobs.plan import Planned
from tfdist.launch.agents.fleet import Fleet
from tfdist.launch.doctor.preflight import preflight, with_free_ports
from tfdist.launch.json_files import dumps
from tfdist.launch.runs.writer import describe_plan
from tfdist.models.checkpoints import Checkpointing
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.choice import StrategyChoice

INTERNAL = (TrainingSpec.VARIABLE, StrategyChoice.VARIABLE, Checkpointing.VARIABLE)
"""Long variables that only tfdist reads."""


def show_plan(planned: Planned, fleet: Fleet | None, *, json: bool, verbose: bool) -> None:
    """Print every task as it would be started; with other hosts, after their preflight."""
    if fleet is None:
        job = with_free_ports(planned.job)
    else:
        job, notes = preflight(planned.job.sharing(os.environ), fleet, needs_tensorflow=not planned.request.own)
        for note in notes:
            typer.echo(f"warning: {note.host}: {note.text}", err=True)
    tasks = [describe_plan(job, plan) for plan in job.plans]
    if json:
        typer.echo(dumps({"format": 1, "tasks": tasks}))
        return
    for task in tasks:
        cores = ", ".join(map(str, task["cores"])) or "any"
        copied = "a copy of " if job.copy is not None and job.copy.folder else ""
        typer.echo(f"\n{task['task']} on {task['host']}, cores: {cores}, in {copied}{task['cwd']}")
        env = dict(task["env"])
        tf_config = env.pop("TF_CONFIG", None)
        if tf_config is not None:
            typer.echo(indent(f"TF_CONFIG={dumps(loads(tf_config), indent=2)}", "  "))
        for name, value in env.items():
            if verbose or name not in INTERNAL:
                typer.echo(f"  {name}={value}")
        typer.echo(f"  {task['command']}")
