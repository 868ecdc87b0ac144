"""A job before it runs: which processes, where, with which program, cores and GPUs. Pure planning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.machine import Machine, Machines
from tfdist.launch.place import place

NO_GPUS = "-1"
"""CUDA_VISIBLE_DEVICES of a task that has no devices."""
COMPUTING_ROLES = ("chief", "worker")
"""Roles whose processes have devices. A chief that only coordinates (where there are workers and ps) has none."""


@dataclass(frozen=True)
class Program:
    """What every task of the job runs."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    python: bool = False
    """`argv` is what stands behind the host's own Python."""


@dataclass(frozen=True)
class Shape:
    """How many tasks of which role, and what each has."""

    roles: Mapping[str, int]
    has_cluster: bool
    leader: str | None = None
    """The name of the task whose end is the job's end; None: all must exit 0."""
    devices: int = 1
    """Devices of each computing task."""
    cores_per_device: int | None = None
    """Pin each CPU device to so many cores; None: pin nothing."""
    gpus: bool = False
    base_port: int | None = None
    """The first task's port, the next one's is one higher; None: any free ones."""


@dataclass(frozen=True)
class TaskPlan:
    """One process to be."""

    task: Task
    host: Host
    program: Program
    cores: tuple[int, ...]
    """To be pinned to; empty: wherever the system puts it."""
    port: int | None
    """Fixed, 0 for any free one, or None if it needs none."""


@dataclass(frozen=True)
class Job:
    """All of it. `cluster` is empty until the ports are known."""

    plans: tuple[TaskPlan, ...]
    leader: str | None
    cluster: Cluster = field(default_factory=lambda: Cluster({}))

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Each host once, in order."""
        return tuple(dict.fromkeys(plan.host for plan in self.plans))

    @property
    def measuring(self) -> tuple[str, ...]:
        """The names of the tasks that train and measure: the leader where there is one, else all."""
        return (self.leader,) if self.leader else tuple(plan.task.name for plan in self.plans)

    def with_ports(self, ports: Mapping[str, int]) -> "Job":
        """The same job with its cluster computed from each task's port, by task name."""
        if not ports:
            return self
        addresses: dict[str, tuple[str, ...]] = {}
        for plan in self.plans:
            if plan.task.name in ports:
                address = plan.host.endpoint(ports[plan.task.name])
                addresses[plan.task.role] = (*addresses.get(plan.task.role, ()), address)
        return replace(self, cluster=Cluster(addresses))

    def environment(self, plan: TaskPlan) -> dict[str, str]:
        """What this task finds in its environment beside the agent's own."""
        env = {**plan.program.env, "TFDIST_TASK": plan.task.name}
        tf_config = self.cluster.tf_config(plan.task)
        if tf_config is not None:
            env |= {"TF_CONFIG": tf_config, "TF_GRPC_REUSE_PORT": "true"}
        return env


def plan_job(shape: Shape, program: Program, machines: Machines) -> Job:
    """Every task in the order of roles, with its host, its cores or GPUs there, and its port.

    Raises:
        TfdistError: they do not fit onto the hosts, or the ports will not do.
    """
    placed = place(shape.roles, {host: machine.slots for host, machine in machines.items()})
    plans = []
    for host in dict.fromkeys(placed.values()):
        plans += plan_host(shape, program, host, machines[host], [task for task in placed if placed[task] == host])
    order = list(placed)
    return Job(tuple(sorted(plans, key=lambda plan: order.index(plan.task))), shape.leader)


def plan_host(shape: Shape, program: Program, host: Host, machine: Machine, tasks: Sequence[Task]) -> list[TaskPlan]:
    """The tasks of one host. Ports count up on each host by itself, so that all firewalls can be alike."""
    computing = [task for task in tasks if has_devices(task, shape)]
    if shape.gpus and len(computing) * shape.devices > len(machine.gpus):
        raise TfdistError(
            f"{host.name} shows {len(machine.gpus)} GPUs, and {len(computing)} workers of {shape.devices} are to run "
            f"there: give it fewer slots, or use fewer --devices"
        )
    base = host.port or shape.base_port
    check_ports(replace(shape, base_port=base), len(tasks), f"{host.name} port=" if host.port else "--port ")
    plans = []
    for position, task in enumerate(tasks):
        at = computing.index(task) if task in computing else None
        port = None if not shape.has_cluster else base + position if base else 0
        cores = cores_of(at, len(computing), shape, machine.cores)
        env = {**device_environment(at, shape, cores, machine.gpu_ids), **program.env}
        argv = (machine.python, *program.argv) if program.python else program.argv
        plans.append(TaskPlan(task, host, replace(program, env=env, argv=argv), cores, port))
    return plans


def check_ports(shape: Shape, tasks: int, told: str = "--port ") -> None:
    """Ports from `base_port` on must exist, and be of use; `told` is how they were asked for.

    Raises:
        TfdistError: they do not, or are not.
    """
    first = shape.base_port
    if first is None:
        return
    if not shape.has_cluster:
        raise TfdistError(f"{told}{first}: a job without a cluster listens on no port; leave {told.strip()} away")
    if not 1 <= first <= 65536 - tasks:
        raise TfdistError(
            f"{told}{first}: {tasks} tasks count up from there; use 1024 to {65536 - tasks}, or leave it away"
        )


def has_devices(task: Task, shape: Shape) -> bool:
    """Whether the task computes; a chief beside parameter servers and a ps do not."""
    return task.role in COMPUTING_ROLES and not (task.role == "chief" and "ps" in shape.roles)


def cores_of(place: int | None, computing: int, shape: Shape, cores: tuple[int, ...]) -> tuple[int, ...]:
    """The cores a task is pinned to: computing tasks get theirs in turn, starting over when there are not enough.

    Tasks that do not compute share the cores of those that do, so that a job of n devices never has more than n
    devices' cores on a host, whatever its strategy; where no task computes they have them all. With GPUs nothing is
    pinned.

    Args:
        place: the how-manieth computing task of its host it is; None: it does not compute.
        computing: how many such tasks its host has.
        shape: of the job.
        cores: those of its host.
    """
    if shape.cores_per_device is None or shape.gpus or not computing:
        return ()
    each = shape.devices * shape.cores_per_device
    first, wanted = (0, each * computing) if place is None else (place * each, each)
    return tuple(sorted({cores[(first + offset) % len(cores)] for offset in range(wanted)}))


def device_environment(
    place: int | None, shape: Shape, cores: tuple[int, ...], gpu_ids: tuple[str, ...]
) -> dict[str, str]:
    """TensorFlow's thread pools as large as the task's cores, and the task's own GPUs.

    These are read when TensorFlow is imported. As many inter-op threads as cores, two at least: with one, the replicas
    of mirrored and central-storage wait for each other (two replicas on two cores were half as fast).
    """
    if shape.gpus:
        first = (place or 0) * shape.devices
        own = range(first, first + shape.devices) if place is not None else ()
        seen = [gpu_ids[number] if gpu_ids else str(number) for number in own]
        return {"CUDA_VISIBLE_DEVICES": ",".join(seen) or NO_GPUS}
    if not cores:
        return {}
    threads = str(len(cores))
    return {
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": str(max(2, len(cores))),
        "OMP_NUM_THREADS": threads,
    }
