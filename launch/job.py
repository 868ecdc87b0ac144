"""The plan of a job: which processes run on which host, with which program, port, cores and GPUs. Starts nothing."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from tfdist.launch.cluster import Cluster, Task, check_ports
from tfdist.launch.environment import DEVICE_ORDER, shared_variables
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import Machine, Machines, place
from tfdist.launch.program_copy import ProgramCopy
from tfdist.launch.text import counted


def near_gpus(devices: int, tasks: int, machine: Machine) -> tuple[tuple[int, ...], ...]:
    """The cores of each task: those of its GPUs' NUMA nodes; empty: do not pin it.

    Tasks on the same nodes share their cores, disjointly if there is one for each. TensorFlow sizes its thread pools
    by the affinity of the process, so these need no setting.

    Args:
        devices: GPUs of each task; task i has the i-th `devices` GPUs of the machine.
        tasks: number of tasks on the machine that compute.
        machine: the host, with the cores that tasks may use.
    """
    nodes = []
    for task in range(tasks):
        gpu_cores = machine.gpu_cores[task * devices : (task + 1) * devices]
        near = dict.fromkeys(core for cores in gpu_cores for core in cores)
        if all(gpu_cores):
            nodes.append(tuple(core for core in near if core in machine.cores))
        else:  # the node of a GPU may be unknown: then it has no cores
            nodes.append(())
    shares = []
    for task, cores in enumerate(nodes):
        index = nodes[:task].count(cores)
        count = nodes.count(cores)
        if len(cores) >= count:
            cores = cores[index * len(cores) // count : (index + 1) * len(cores) // count]
        shares.append(() if len(cores) == len(machine.cores) else tuple(sorted(cores)))
    return tuple(shares)


NO_GPUS = "-1"
"""CUDA_VISIBLE_DEVICES of a task without devices."""
HOST_LISTS = {"{ps_hosts}": "ps", "{worker_hosts}": "worker"}
"""Words in a command that become the addresses of all tasks of a role."""
_PLACEHOLDERS = re.compile(r"\{(?:job|index|ps_hosts|worker_hosts)\}")
"""Words in a command that become the task's place in the cluster, for programs that are configured by flags."""


@dataclass(frozen=True)
class Program:
    """The program that every task of a job runs."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    python: bool = False
    """Run `argv` with the Python interpreter of the task's host."""
    reports_steps: bool = False
    """Its leading tasks emit a `step` event for every few steps; False: unknown."""
    preload: str = ""
    """The module whose `preload` imports what the tasks import; they may be forked from a process that has called it.
    Empty: they are executed."""
    copy_of: str = ""
    """The folder on the host in whose place tasks run in a copy, `cwd`; empty: `cwd` is no copy."""

    @property
    def folder(self) -> str:
        """The folder on the host that lasts."""
        return self.copy_of or self.cwd


@dataclass(frozen=True)
class RoleShape:
    """The tasks of one role, and what their exits mean."""

    count: int
    computes: bool = True
    """Each task has devices; False for coordinators, servers and evaluators."""
    leads: bool = True
    """The job succeeds once every leading task has exited with code 0; the other tasks are then stopped."""
    serves: bool = False
    """Its tasks serve the leading ones: an earlier exit is a failure, even with code 0."""
    restarts: tuple[str, ...] | None = None
    """The roles whose tasks are all restarted when one of this role fails; empty: that task alone; None: no restart."""
    follows: bool = False
    """Once the leading tasks have exited, the job waits for its tasks to exit too (an evaluator). They are outside the
    cluster, so they have no port."""
    needs_checkpoints: bool = True
    """Its tasks read or write the job's folder of checkpoints, if it has one."""


@dataclass(frozen=True)
class Shape:
    """The tasks of a job before they have hosts."""

    roles: Mapping[str, RoleShape]
    """Shapes by role, in the order of the tasks."""
    has_cluster: bool
    devices: int = 1
    """Devices of each computing task."""
    cores_per_device: int | None = None
    """CPU cores of each device; None: do not pin tasks to cores."""
    gpus: bool = False
    logical_gpus: int | None = None
    """Parts into which each host's one GPU is cut; a device is then a part. None: a device is a whole GPU."""
    base_port: int | None = None
    """Port of the first task on each host, counted up for the next ones; None: any free ports."""


@dataclass(frozen=True)
class TaskPlan:
    """One process to start."""

    task: Task
    host: Host
    program: Program
    cores: tuple[int, ...]
    """CPU cores to pin the process to; empty: do not pin it."""
    port: int | None
    """0: any free port; None: the task needs none."""

    @property
    def script(self) -> str:
        """The Python file that it runs, as in `python train.py`; empty: none, or unknown."""
        word = next((word for word in self.program.argv[1:] if not word.startswith("-")), "")
        return word if self.program.python and word.endswith(".py") else ""


class TaskNames(tuple[str, ...]):
    """Names of tasks in order. `in`, which is asked about each message, takes as long for 4,000 as for two."""

    @cached_property
    def _set(self) -> frozenset[str]:
        return frozenset(self)

    def __contains__(self, name: object) -> bool:
        return name in self._set


@dataclass(frozen=True)
class Job:
    """All processes to start. `cluster` is empty until the ports are known."""

    plans: tuple[TaskPlan, ...]
    roles: Mapping[str, RoleShape]
    cluster: Cluster = field(default_factory=lambda: Cluster({}))
    shared: Mapping[str, str] = field(default_factory=dict)
    """Variables that every task gets, unless its program or tfdist sets them: of the launcher's environment, and
    TFDIST_ARM_DIR."""
    checkpoint_dir: str = ""
    """The folder of checkpoints, if it is to be checked before tasks start: an absolute path."""
    first_attempt: int = 0
    """How often another launcher has restarted it before: tasks count on from there."""
    copy: ProgramCopy | None = None
    """The folder that travels to all hosts; tasks run in its copy."""
    led_elsewhere: bool = False
    """Its one task does not lead the training: the leading ones have launchers of their own."""

    @cached_property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts in the order of their first task."""
        return tuple(dict.fromkeys(plan.host for plan in self.plans))

    @property
    def checkpoint_hosts(self) -> tuple[Host, ...]:
        """The hosts whose tasks need `checkpoint_dir`; empty if there is none."""
        hosts = (plan.host for plan in self.plans if self.roles[plan.task.role].needs_checkpoints)
        return tuple(dict.fromkeys(hosts)) if self.checkpoint_dir else ()

    @cached_property
    def plans_on(self) -> Mapping[Host, Sequence[TaskPlan]]:
        """The tasks of each host, in the order of `hosts`."""
        on_host: dict[Host, list[TaskPlan]] = {}
        for plan in self.plans:
            on_host.setdefault(plan.host, []).append(plan)
        return on_host

    @cached_property
    def leading(self) -> TaskNames:
        """Names of the tasks whose exits with code 0 end the job. They run the training loop and measure it."""
        return TaskNames(plan.task.name for plan in self.plans if self.roles[plan.task.role].leads)

    @cached_property
    def following(self) -> TaskNames:
        """Names of the tasks that end some time after the leading ones."""
        return TaskNames(plan.task.name for plan in self.plans if self.roles[plan.task.role].follows)

    @cached_property
    def reports_steps(self) -> bool:
        """Whether its leading tasks emit `step` events."""
        return any(plan.program.reports_steps for plan in self.plans)

    @cached_property
    def serving(self) -> TaskNames:
        """Names of the tasks that the leading ones need until they have exited."""
        return TaskNames(plan.task.name for plan in self.plans if self.roles[plan.task.role].serves)

    def with_ports(self, ports: Mapping[str, int]) -> "Job":
        """The same job with its cluster, from the port of each task by task name."""
        addresses: dict[str, list[str]] = {}
        for plan in self.plans:
            if plan.task.name in ports:
                addresses.setdefault(plan.task.role, []).append(plan.host.endpoint(ports[plan.task.name]))
        cluster = Cluster({role: tuple(of_role) for role, of_role in addresses.items()})
        return replace(self, cluster=cluster) if addresses else self

    def with_variables(self, env: Mapping[str, str]) -> "Job":
        """The job whose tasks also get these variables."""
        plans = (replace(plan, program=replace(plan.program, env={**plan.program.env, **env})) for plan in self.plans)
        return replace(self, plans=tuple(plans))

    def sharing(self, environ: Mapping[str, str]) -> "Job":
        """The job whose tasks on all hosts get the variables that those on this machine inherit from `environ`."""
        return self if all(host.local for host in self.hosts) else replace(self, shared=shared_variables(environ))

    def command(self, plan: TaskPlan) -> tuple[str, ...]:
        """The command of the task, with its role, index and the cluster's addresses in place of the placeholders."""
        return self._command(plan, self.host_lists)

    def command_without_addresses(self, plan: TaskPlan) -> tuple[str, ...]:
        """The same, but `{ps_hosts}` and `{worker_hosts}` stay: `host_lists` has what they stand for."""
        return self._command(plan, dict(zip(HOST_LISTS, HOST_LISTS, strict=True)))

    def _command(self, plan: TaskPlan, host_lists: Mapping[str, str]) -> tuple[str, ...]:
        values = {"{job}": plan.task.role, "{index}": str(plan.task.index), **host_lists}
        return tuple(_PLACEHOLDERS.sub(lambda match: values[match[0]], word) for word in plan.program.argv)

    @cached_property
    def host_lists(self) -> Mapping[str, str]:
        """The addresses that `{ps_hosts}` and `{worker_hosts}` stand for, with commas between them."""
        return {name: ",".join(self.cluster.addresses.get(role, ())) for name, role in HOST_LISTS.items()}

    def environment(self, plan: TaskPlan) -> dict[str, str]:
        """The variables that the task gets in addition to its agent's environment."""
        tf_config = self.cluster.tf_config(plan.task)
        return self.environment_without_addresses(plan) | ({} if tf_config is None else {"TF_CONFIG": tf_config})

    def environment_without_addresses(self, plan: TaskPlan) -> dict[str, str]:
        """The same without TF_CONFIG, in which the addresses of all tasks are."""
        reuse = {"TF_GRPC_REUSE_PORT": "true"} if self.cluster.addresses else {}
        return {**self.shared, **plan.program.env, "TFDIST_TASK": plan.task.name, **reuse}


def plan_job(shape: Shape, program: Program, machines: Machines) -> Job:
    """Give every task a host, cores or GPUs, and a port.

    Raises:
        TfdistError: the tasks do not fit on the hosts, or the ports are invalid.
    """
    counts = {role: tasks.count for role, tasks in shape.roles.items()}
    hosts = place(counts, {host: machine.slots for host, machine in machines.items()})
    on_host: dict[Host, list[Task]] = {}
    for task, host in hosts.items():
        on_host.setdefault(host, []).append(task)
    plans: dict[Task, TaskPlan] = {}
    for host, tasks in on_host.items():
        plans |= _plan_host(shape, program, host, machines[host], tasks)
    return Job(tuple(plans[task] for task in hosts), shape.roles)


def _plan_host(
    shape: Shape, program: Program, host: Host, machine: Machine, tasks: Sequence[Task]
) -> dict[Task, TaskPlan]:
    computing = [task for task in tasks if shape.roles[task.role].computes]
    machine = machine.cut(shape.logical_gpus)
    if shape.gpus and len(computing) * shape.devices > len(machine.gpus):
        raise TfdistError(
            f"{host.name} has {counted(len(machine.gpus), 'GPU')} for {counted(len(computing), 'worker')} with "
            f"--devices {shape.devices}: give it fewer slots, or reduce --devices"
        )
    if shape.gpus and shape.devices > machine.gpus_per_process and computing:
        raise TfdistError(
            f"--devices {shape.devices}: {host.name} has MIG instances, and a process can use only one: "
            f"use --strategy multiworker --workers {len(machine.gpus)} and omit --devices"
        )
    base_port = _base_port(shape, host, len(tasks))
    gpus = _gpus_of_tasks(shape, host, machine, tasks, computing)
    near = near_gpus(shape.devices, len(computing), machine) if shape.gpus else ()
    plans = {}
    index_of = {task: index for index, task in enumerate(computing)}
    for position, task in enumerate(tasks):
        index = index_of.get(task)
        follows = shape.roles[task.role].follows
        cores = _pinned_cores(index, len(computing), shape, machine.cores)
        if follows and cores:  # the cores to which nothing is pinned, if there are any
            cores = tuple(core for core in machine.cores if core not in cores) or cores
        # the name alone would match eth10, too
        network = {"NCCL_SOCKET_IFNAME": f"={host.interface}"} if host.interface else {}
        env = {**_device_environment(gpus.get(task), cores), **network, **program.env}
        if near and index is not None:
            cores = near[index]
        argv = (machine.python, *program.argv) if program.python else program.argv
        port = None
        if not follows:
            port = base_port + position if base_port else base_port
        plans[task] = TaskPlan(task, host, replace(program, env=env, argv=argv), cores, port)
    return plans


def _base_port(shape: Shape, host: Host, count: int) -> int | None:
    # Each host counts from the same port, so that one firewall rule fits all hosts.
    base_port = host.port or shape.base_port
    option = f"{host.name} port=" if host.port else "--port "
    if base_port is None:
        return 0 if shape.has_cluster else None
    if not shape.has_cluster:
        raise TfdistError(f"{option}{base_port}: a job without a cluster uses no ports; omit {option.strip()}")
    check_ports(base_port, count, option)
    return base_port


def _pinned_cores(index: int | None, computing: int, shape: Shape, cores: tuple[int, ...]) -> tuple[int, ...]:
    """The cores to pin a task to. Computing tasks take theirs in turn and share cores if the host has too few.

    Other tasks share the cores of the host's computing tasks, so that n devices never use more than n devices' cores,
    whatever the strategy. On a host without computing tasks nothing is pinned; with GPUs, see `near_gpus`.

    Args:
        index: the task's index among the host's computing tasks; None: it does not compute.
        computing: number of computing tasks on the host.
        shape: of the job.
        cores: all cores of the host.
    """
    if shape.cores_per_device is None or shape.gpus or not computing:
        return ()
    per_task = shape.devices * shape.cores_per_device
    first, count = (0, per_task * computing) if index is None else (index * per_task, per_task)
    return tuple(sorted({cores[(first + offset) % len(cores)] for offset in range(count)}))


def _gpus_of_tasks(
    shape: Shape, host: Host, machine: Machine, tasks: Sequence[Task], computing: Sequence[Task]
) -> dict[Task, tuple[str, ...]]:
    """The ids of the GPUs that each task sees; a task that is missing sees those of its agent.

    A host with role= and gpus= gives its GPUs to its tasks, even if they do not compute: a GPU each, in turn.
    """
    ids = machine.gpu_ids or tuple(map(str, range(len(machine.gpus))))
    if ids and host.role and host.gpus and not computing:
        each = max(1, len(ids) // len(tasks))
        return {
            task: tuple(ids[(position * each + offset) % len(ids)] for offset in range(each))
            for position, task in enumerate(tasks)
        }
    if not shape.gpus and not machine.hide_gpus:
        return {}
    each = shape.devices if shape.gpus else 0
    taken = {task: ids[index * each : (index + 1) * each] for index, task in enumerate(computing)}
    return {task: taken.get(task, ()) for task in tasks}


def _device_environment(gpus: tuple[str, ...] | None, cores: tuple[int, ...]) -> dict[str, str]:
    """The task's GPUs, and TensorFlow's thread pools sized to the task's cores. TensorFlow reads both on import.

    CUDA numbers GPUs by speed, unless CUDA_DEVICE_ORDER says to number them as nvidia-smi does. The inter-op pool has
    at least 2 threads: with one, the replicas of mirrored and central-storage wait for each other (two replicas on two
    cores took twice as long).
    """
    env: dict[str, str] = {}
    if gpus is not None:
        env = {"CUDA_VISIBLE_DEVICES": ",".join(dict.fromkeys(gpus)) or NO_GPUS, DEVICE_ORDER: "PCI_BUS_ID"}
    if cores:
        env["TF_NUM_INTRAOP_THREADS"] = env["OMP_NUM_THREADS"] = str(len(cores))
        env["TF_NUM_INTEROP_THREADS"] = str(max(2, len(cores)))
    return env


def program_of(
    command: tuple[str, ...], env: Mapping[str, str], machines: Machines, copy: ProgramCopy | None = None
) -> Program:
    """The user's command. `python`, or a script without it, runs with the Python of tfdist on each host.

    Programs and scripts are checked only if every task runs here, in this folder; or in a copy of a folder.

    Raises:
        TfdistError: the program or its script does not exist.
    """
    program, *arguments = command
    check = not any(host.chdir or not host.local for host in machines)
    cwd = str(Path.cwd()) if copy is None or not copy.folder else copy.folder
    on_path = shutil.which(program) is not None
    is_python = program in ("python", "python3")
    words = tuple(arguments) if is_python else command
    if is_python or (program.endswith(".py") and (Path(cwd, program).is_file() or not on_path)):
        if words and words[0].endswith(".py"):
            if copy is not None:
                copy.check_file(words[0])
            elif check and not Path(words[0]).is_file():
                raise TfdistError(f"the script {words[0]!r} is not in {cwd!r}: give its path")
        return Program(words, env, cwd, python=True)
    if copy is not None and "/" in program and not Path(program).is_absolute():
        copy.check_file(program)
    elif check and not on_path:
        if Path(program).is_file():
            raise TfdistError(f"the program {program!r} is not executable: chmod +x it, or name its interpreter")
        raise TfdistError(f"the program {program!r} is not found: give its path, or install it")
    return Program(command, env, cwd)
