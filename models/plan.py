"""A training spec becomes the processes of a job. No TensorFlow."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.job import Job, Program, RoleShape, Shape, plan_job
from tfdist.launch.machine import Machines
from tfdist.models.spec import TrainingSpec
from tfdist.strategies.catalog import CATALOG, Ends, Keras
from tfdist.strategies.choice import StrategyChoice

TRAINING_COMMAND = ("-m", "tfdist.models.training.task")
"""Behind the Python of each host."""


def shape_of(choice: StrategyChoice, base_port: int | None = None) -> Shape:
    """The processes that the choice's strategy needs."""
    strategy = CATALOG[choice.strategy]
    return Shape(
        roles=strategy.roles(choice.workers, choice.ps),
        has_cluster=strategy.has_cluster,
        leader="chief-0" if strategy.ends is Ends.LEADER_EXITS else None,
        devices=choice.devices,
        cores_per_device=choice.cores_per_device,
        gpus=choice.gpus,
        base_port=base_port,
    )


def task_environment(choice: StrategyChoice) -> dict[str, str]:
    """What every task of the job finds in its environment, its own cluster and devices apart.

    A server that a peer has not reached yet must not fail its calls at once: GRPC_FAIL_FAST=use_caller, as
    https://www.tensorflow.org/tutorials/distribute/parameter_server_training says for workers and ps.
    """
    return {
        **choice.to_env(),
        "TF_USE_LEGACY_KERAS": "1" if choice.keras is Keras.TWO else "0",
        **({"GRPC_FAIL_FAST": "use_caller"} if choice.ps else {}),
    }


def plan_training(
    spec: TrainingSpec, machines: Machines, base_port: int | None = None, extra: Mapping[str, str] | None = None
) -> Job:
    """The built-in training as a job, with `extra` variables in each task's environment."""
    env = {**(extra or {}), **task_environment(spec), "PYTHONSAFEPATH": "1"}  # a user's folder may hold a random.py
    return plan_job(shape_of(spec, base_port), Program(TRAINING_COMMAND, env, str(Path.cwd()), python=True), machines)


def plan_command(choice: StrategyChoice, command: Program, machines: Machines, base_port: int | None = None) -> Job:
    """The user's own program as a job; the spec says under which strategy. Its own variables win over ours."""
    shape = shape_of(choice, base_port)
    evaluators = sum(host.slots or 1 for host in machines if host.role == "evaluator")
    if evaluators and shape.has_cluster:
        shape = replace(shape, roles={**shape.roles, "evaluator": RoleShape(evaluators, computes=False)})
    return plan_job(shape, replace(command, env={**task_environment(choice), **command.env}), machines)


def only_task(job: Job, cluster: Cluster, task: Task) -> Job:
    """Of a job, the one task that somebody else's TF_CONFIG describes; it has this machine's devices to itself."""
    same = [plan for plan in job.plans if plan.task.role == task.role]
    first = (same or list(job.plans))[0]  # a chief without parameter servers is a worker that also saves
    return Job((replace(first, task=task, port=None),), None, cluster)
