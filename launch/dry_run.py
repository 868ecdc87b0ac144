"""A planned job as --dry-run prints it and as the run's folder keeps it. Starts nothing."""

import shlex
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from tfdist.launch.agent_program.ports import reserve
from tfdist.launch.doctor.problems import port_problem
from tfdist.launch.errors import TfdistError
from tfdist.launch.job import Job, TaskPlan
from tfdist.launch.redact import redact_command, redact_value
from tfdist.launch.runs.writer import RunWriter


def with_free_ports(job: Job) -> Job:
    """The job with ports that are free on this machine now; they are not reserved.

    Raises:
        TfdistError: a fixed port is in use.
    """
    ports = {}
    with ExitStack() as sockets:
        for plan in job.plans:
            if plan.port is None:
                continue
            try:
                listener = sockets.enter_context(reserve(plan.port))
            except OSError as error:
                raise TfdistError(str(port_problem(plan.host, plan.port, error.strerror or str(error)))) from None
            ports[plan.task.name] = listener.getsockname()[1]
    return job.with_ports(ports)


def describe_plan(job: Job, plan: TaskPlan) -> dict[str, Any]:
    """One task for --dry-run and cluster.json; `env` holds what tfdist sets or forwards, secrets redacted."""
    return {
        "task": plan.task.name,
        "host": plan.host.name,
        "cores": list(plan.cores),
        "env": {name: redact_value(name, value) for name, value in job.environment(plan).items()},
        "cwd": plan.program.cwd,
        "command": redact_command(plan.program.argv),
    }


def save_plan(job: Job, hellos: Mapping[str, Mapping[str, Any]], writer: RunWriter) -> None:
    """Write hosts.json, cluster.json and commands.txt; `hellos` are the host descriptions by host name."""
    run_dir = writer.run_dir
    writer.save(run_dir.hosts, hellos)
    writer.save(run_dir.cluster, [describe_plan(job, plan) for plan in job.plans])
    commands = [f"{plan.task.name}: {redact_command(plan.program.argv)}" for plan in job.plans]
    shared = shlex.join(f"{name}={redact_value(name, value)}" for name, value in job.shared.items())
    environment = [f"environment: {shared}"] if shared else []
    writer.save_text(run_dir.commands, "\n".join([redact_command(sys.argv), *environment, *commands]) + "\n")
