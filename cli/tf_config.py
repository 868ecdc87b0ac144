"""`tfdist tf-config`."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from tfdist.cli.options import Port, host_options, option, training_options
from tfdist.jobs.choice import choose
from tfdist.jobs.host_selection import HostSelection
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


NOT_USED = ("transport", "remote_prefix", "interface", "python", "chdir")
"""Options about hosts that change no address."""


@training_options(only=("strategy", "workers", "ps"))
@host_options(NOT_USED)
def tf_config(
    choices: Mapping[str, Any], selection: HostSelection, *, task: OnlyTask = None, port: Port = None
) -> None:
    """Print the TF_CONFIG of every task. Use it to start tasks without tfdist.

    \b
    Examples:
      tfdist tf-config --strategy multiworker --workers 2 --port 12345
      tfdist tf-config --hosts h1,h2 --port 12345
      TF_CONFIG=$(tfdist tf-config --workers 2 --port 12345 --task worker:1) \\
        python train.py

    Use the same --port for every task: without it, each call chooses other free ports. Hosts are not connected.
    """
    machines = local_machines(replace(local_machine(), gpus=()))  # the tasks may run on other machines
    if selection.hosts:
        machines = next(selection.imagined(devices=1))
        free = next((host.name for host in selection.hosts if port is None and not host.port), None)
        if free is not None:
            fix = "add --port 12345, or port= in the hostfile"
            raise TfdistError(f"--hosts: the free ports of {free} are not known without connecting it; {fix}")
    request = Request(choices, ("python",), port)
    strategy = choose(request, machines).spec.strategy
    if not CATALOG[strategy].has_cluster:
        raise TfdistError(f"--strategy {strategy}: has no cluster and so no TF_CONFIG; {use_a_cluster()}")
    job = plan(request, machines).job
    # A fixed port may be in use by a task that was started earlier, so it is not checked.
    ports = {plan.task.name: plan.port or 0 for plan in job.plans}
    job = job.with_ports(ports) if all(ports.values()) else with_free_ports(job)
    values = {f"{plan.task.role}:{plan.task.index}": job.cluster.tf_config(plan.task) or "" for plan in job.plans}
    if task is None:
        for name, value in values.items():
            typer.echo(f"# {name}\nexport TF_CONFIG={shlex.quote(value)}")
    elif task.replace("-", ":") in values:
        typer.echo(values[task.replace("-", ":")])
    else:
        raise TfdistError(f"--task {task}: {did_you_mean(task, values)}")
