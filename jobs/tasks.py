"""A complete spec -> the tasks of its job, on these machines. No TensorFlow."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tfdist.jobs.checks import check_combinations
from tfdist.jobs.request import Request
from tfdist.launch.agent_program.template import module_command
from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.environment import device_order
from tfdist.launch.errors import MissingHardwareError
from tfdist.launch.job import Job, Program, RoleShape, Shape, plan_job, program_of
from tfdist.launch.machine import Machines
from tfdist.models.collectives.spec import CollectiveSpec
from tfdist.models.datasets.table import check_held_out, describe
from tfdist.models.spec import EVALUATOR, INHERITED, TrainingSpec
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import LEGACY_KERAS, GpuThreads


def job_of(request: Request, spec: StrategyChoice, program: Program | None, machines: Machines) -> Job:
    """The tasks of the request, whose spec is complete. `program`: the user's own; None: that of the spec.

    Raises:
        TfdistError: they do not fit on the machines, or TensorFlow cannot train what the spec combines.
    """
    if program is not None:
        return plan_command(spec, program, machines, request.port)
    if isinstance(spec, TrainingSpec):
        evaluator = request.recovery.evaluator
        return plan_training(spec, machines, request.port, _variables(request), evaluator=evaluator)
    assert isinstance(spec, CollectiveSpec)
    return plan_collective(spec, machines, _variables(request))


def program_for(request: Request, machines: Machines) -> Program:
    """The user's own program, as on these machines.

    Raises:
        TfdistError: it does not exist.
    """
    program = program_of(request.command, _variables(request), machines, request.copy)
    return replace(program, cwd=request.cwd) if request.cwd else program


def _variables(request: Request) -> dict[str, str]:
    """What every task gets beside the variables of its strategy."""
    turns = {"TFDIST_TURNS": "1"} if request.paced else {}
    env = {**turns, **device_order(request.environ), **request.env}
    if request.own and LEGACY_KERAS in request.environ and "keras" not in request.choices:
        env.setdefault(LEGACY_KERAS, request.environ[LEGACY_KERAS])  # other hosts do not have it
    return env


def shape_of(choice: StrategyChoice, base_port: int | None = None, *, evaluator: bool = False) -> Shape:
    """The tasks of the strategy's job, and one that evaluates its checkpoints.

    Tasks that serve need no checkpoints: the leading ones save and restore their variables.
    """
    strategy = CATALOG[choice.strategy]
    counts = {"one": 1, "workers": choice.workers, "ps": choice.ps}
    roles = {
        role.name: RoleShape(
            counts[role.count], role.computes, role.leads, role.serves, role.restarts, needs_checkpoints=role.leads
        )
        for role in strategy.roles
    }
    if evaluator:
        roles[EVALUATOR] = RoleShape(1, computes=False, leads=False, restarts=(), follows=True)
    return Shape(
        roles=roles,
        has_cluster=strategy.has_cluster,
        devices=choice.devices,
        cores_per_device=choice.cores_per_device,
        gpus=choice.gpus,
        logical_gpus=choice.logical_gpus,
        base_port=base_port,
    )


def task_count(choice: StrategyChoice) -> int:
    """The number of tasks of the strategy's job."""
    return sum(role.count for role in shape_of(choice).roles.values())


def plan_training(
    spec: TrainingSpec,
    machines: Machines,
    base_port: int | None = None,
    env: Mapping[str, str] | None = None,
    *,
    evaluator: bool = False,
) -> Job:
    """The built-in training as a job; its tasks also get the variables of `env`.

    With `evaluator`, one more task follows the checkpoints: without GPUs (unless its host has role=evaluator and
    gpus=), and on cores without a training task if its host has any.

    Raises:
        TfdistError: the tasks do not fit on the hosts, TensorFlow cannot train what the spec combines, or the evaluator
            has no held-out examples.
    """
    check_combinations(spec)  # again: a job that lost hosts has another number of workers
    if evaluator:
        check_held_out(spec, describe(spec.dataset, spec.data_dir), "--set evaluator=true")
    shape = shape_of(spec, base_port, evaluator=evaluator)
    kind = "graph" if CATALOG[spec.strategy].graph else "training"
    program = _program(kind, {**(env or {}), **_environment(spec)})
    return plan_job(shape, replace(program, reports_steps=True), machines)


def shape_of_command(choice: StrategyChoice, argv: Sequence[str], base_port: int | None = None) -> Shape:
    """The tasks of a custom program. If its flags name the cluster's hosts, there is no chief: the workers lead.

    Raises:
        MissingHardwareError: the command has a placeholder for hosts that the strategy's job has none of.
    """
    shape = shape_of(choice, base_port)
    roles = {name: replace(role, needs_checkpoints=True) for name, role in shape.roles.items()}
    flags = [f"{{{role}_hosts}}" for role in ("ps", "worker") if any(f"{{{role}_hosts}}" in word for word in argv)]
    for flag in flags:
        if not shape.has_cluster or flag.removesuffix("_hosts}")[1:] not in roles:
            raise MissingHardwareError(
                f"{flag} in the command: {choice.strategy} has no such tasks; use --strategy parameter-server"
            )
    if flags:
        names = tuple(name for name, role in roles.items() if role.computes or role.serves)
        roles = {
            name: replace(roles[name], leads=roles[name].computes, serves=not roles[name].computes, restarts=names)
            for name in names
        }
    return replace(shape, roles=roles)


def plan_command(choice: StrategyChoice, command: Program, machines: Machines, base_port: int | None = None) -> Job:
    """A custom program as a job. Hosts with role=evaluator run it too; the program's variables win over ours."""
    shape = shape_of_command(choice, command.argv, base_port)
    evaluators = sum(host.slots or 1 for host in machines if host.role == EVALUATOR)
    if evaluators and shape.has_cluster:
        evaluator = RoleShape(evaluators, computes=False, leads=False, restarts=())
        shape = replace(shape, roles={**shape.roles, EVALUATOR: evaluator})
    return plan_job(shape, replace(command, env={**_environment(choice), **command.env}), machines)


def plan_collective(spec: CollectiveSpec, machines: Machines, env: Mapping[str, str]) -> Job:
    """The measurement as a job; its tasks also get the variables of `env`.

    Raises:
        TfdistError: the tasks do not fit on the hosts.
    """
    return plan_command(spec, _program("collectives", env), machines)


def _program(package: str, env: Mapping[str, str]) -> Program:
    """The tasks of a package of models/."""
    argv = module_command(f"tfdist.models.{package}.task")
    return Program(argv, env, str(Path.cwd()), python=True, preload="tfdist.models.training.task")


def _environment(choice: StrategyChoice) -> dict[str, str]:
    """The variables of every task. Calls wait for a server that is not up yet.

    Sources: https://www.tensorflow.org/tutorials/distribute/parameter_server_training (GRPC_FAIL_FAST),
    https://www.tensorflow.org/guide/gpu_performance_analysis (TF_GPU_THREAD_MODE).
    """
    fail_fast = {"GRPC_FAIL_FAST": "use_caller"} if CATALOG[choice.strategy].leader else {}
    gpu_threads = {} if choice.gpu_threads is GpuThreads.GLOBAL else {"TF_GPU_THREAD_MODE": str(choice.gpu_threads)}
    pools = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS") if choice.intra_op_threads else ()
    threads = dict.fromkeys(pools, str(choice.intra_op_threads))
    log = {"TF_CPP_MIN_LOG_LEVEL": "0"} if choice.log_device_placement else {}
    return {**choice.to_env(), **choice.keras.environment, **fail_fast, **gpu_threads, **threads, **log}


def only_task(job: Job, cluster: Cluster, task: Task, earlier: int = 0) -> Job:
    """The job reduced to the one task that another launcher starts here.

    It gets the devices that come after those of `earlier` tasks of its role on this machine. Only tasks of roles that
    lead report steps, and wait for each other before they exit.
    """
    role = job.roles.get(task.role)
    leads = role is not None and role.leads
    plans = [plan for plan in job.plans if plan.task.role == task.role] or job.plans
    plan = plans[earlier % len(plans)]
    reports = leads and plan.program.reports_steps
    env = {**plan.program.env, INHERITED: "1"} if reports else plan.program.env
    plan = replace(plan, task=task, program=replace(plan.program, env=env, reports_steps=reports), port=None)
    return Job((plan,), {task.role: RoleShape(1)}, cluster, led_elsewhere=not leads)
