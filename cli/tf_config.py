"""`tfdist tf-config`."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfdist.cli.options import Port, option, training_options
from tfdist.launch.errors import TfdistError

if TYPE_CHECKING:
    from tfdist.launch.cluster import Task
    from tfdist.launch.job import Job

OnlyTask = Annotated[
    str | None,
    option("--task", "Only this task, only the value: worker:1, chief:0, ps:0.", variable="TFDIST_TF_CONFIG_TASK"),
]


@training_options(only=("strategy", "workers", "ps"))
def tf_config(choices: Mapping[str, Any], task: OnlyTask = None, port: Port = None) -> None:
    """Print the TF_CONFIG of every task, for people who start processes by hand.

    \b
    Examples:
      tfdist tf-config --strategy multiworker --workers 2 --port 12345
      TF_CONFIG=$(tfdist tf-config --workers 2 --port 12345 --task worker:1) python train.py

    With --task only the value is printed. Give the same --port for every task: without it, free ports are chosen anew.
    """
    from tfdist.launch.dry_run import with_free_ports
    from tfdist.launch.job import Program, plan_job
    from tfdist.launch.machine import local_machine, local_machines
    from tfdist.models.plan import shape_of
    from tfdist.models.presets import resolve_strategy

    machine = replace(local_machine(), gpus=())  # the processes may be meant for other machines
    spec = resolve_strategy(choices, machine).spec
    job = plan_job(shape_of(spec, port), Program((), {}, "/"), local_machines(machine))
    if not any(plan.port is not None for plan in job.plans):
        raise TfdistError(f"--strategy {spec.strategy} is one process or has no cluster: it needs no TF_CONFIG")
    # A fixed port may already serve a task that was started by hand, so it is not tried.
    job = (
        with_free_ports(job) if port is None else job.with_ports({plan.task.name: plan.port or 0 for plan in job.plans})
    )
    if task is not None:
        typer.echo(job.cluster.tf_config(find_task(job, task)))
        return
    for plan in job.plans:
        value = shlex.quote(job.cluster.tf_config(plan.task) or "")
        typer.echo(f"# {plan.task.role}:{plan.task.index}\nexport TF_CONFIG={value}")


def find_task(job: "Job", name: str) -> "Task":
    """The job's task called `worker:1` (or `worker-1`).

    Raises:
        TfdistError: it has none of that name.
    """
    for plan in job.plans:
        if name.replace(":", "-") == plan.task.name:
            return plan.task
    known = ", ".join(f"{plan.task.role}:{plan.task.index}" for plan in job.plans)
    raise TfdistError(f"--task {name}: this job has {known}")
