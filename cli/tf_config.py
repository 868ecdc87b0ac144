"""`tfdist tf-config`."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from tfdist.cli.options import Port, option, training_options
from tfdist.jobs.choice import choose
from tfdist.jobs.plan import plan
from tfdist.jobs.request import Request
from tfdist.launch.doctor.preflight import with_free_ports
from tfdist.launch.errors import TfdistError
from tfdist.launch.machine import local_machine, local_machines
from tfdist.launch.text import did_you_mean
from tfdist.strategies.catalog import CATALOG, use_a_cluster

OnlyTask = Annotated[
    str | None,
    option(
        "--task",
        "Print only the value for this task: worker:1, chief:0, ps:0.",
        variable="TFDIST_TF_CONFIG_TASK",  # tasks have a TFDIST_TASK of another format
    ),
]


@training_options(only=("strategy", "workers", "ps"))
def tf_config(choices: Mapping[str, Any], task: OnlyTask = None, port: Port = None) -> None:
    """Print the TF_CONFIG of every task. Use it to start tasks without tfdist.

    \b
    Examples:
      tfdist tf-config --strategy multiworker --workers 2 --port 12345
      TF_CONFIG=$(tfdist tf-config --workers 2 --port 12345 --task worker:1) \\
        python train.py

    Use the same --port for every task: without it, each call chooses other free ports.
    """
    machine = replace(local_machine(), gpus=())  # the tasks may run on other machines
    request = Request(choices, ("python",), port)
    strategy = choose(request, local_machines(machine)).spec.strategy
    if not CATALOG[strategy].has_cluster:
        raise TfdistError(f"--strategy {strategy}: has no cluster and so no TF_CONFIG; {use_a_cluster()}")
    job = plan(request, local_machines(machine)).job
    # A fixed port may be in use by a task that was started earlier, so it is not checked.
    ports = {plan.task.name: plan.port or 0 for plan in job.plans}
    job = with_free_ports(job) if port is None else job.with_ports(ports)
    values = {f"{plan.task.role}:{plan.task.index}": job.cluster.tf_config(plan.task) or "" for plan in job.plans}
    if task is None:
        for name, value in values.items():
            typer.echo(f"# {name}\nexport TF_CONFIG={shlex.quote(value)}")
    elif task.replace("-", ":") in values:
        typer.echo(values[task.replace("-", ":")])
    else:
        raise TfdistError(f"--task {task}: {did_you_mean(task, values)}")
