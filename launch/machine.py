"""The cores and GPUs that hosts offer to a job."""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfdist.launch.agent_program.description import describe
from tfdist.launch.cluster import Task
from tfdist.launch.errors import MissingHardwareError, Problem, TfdistError, raise_problems
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.text import counted
from tfdist.launch.typed_json import from_json

FOR_WORKERS = ("", "worker")
"""Roles of hosts that accept workers."""


def place(roles: Mapping[str, int], slots: Mapping[Host, int | None]) -> dict[Task, Host]:
    """Assign a host to every task. Hosts are filled in order; tasks are ordered by role, then index.

    Every worker takes a slot. A host with a role accepts only tasks of that role, one per slot. Tasks of a role without
    a host take no slots: chief and evaluators run on the first host without role=, parameter servers on all such hosts
    in turn.

    Args:
        roles: number of tasks of each role.
        slots: of each host; None: no limit.

    Raises:
        TfdistError: the tasks do not fit, or a host gets no task.
    """
    for host in slots:
        if host.role and not roles.get(host.role):
            raise TfdistError(
                f"{host.name} has role={host.role}, but this job has no {host.role}: drop role= or the host"
            )
    hosts = {
        Task(role, index): host
        for role, count in roles.items()
        for index, host in enumerate(_hosts_for(role, count, slots))
    }
    used = set(hosts.values())
    idle = [host.name for host in slots if host not in used]
    if idle:
        raise TfdistError(f"no task for {', '.join(idle)}: use more workers, or --exclude {idle[0]}")
    return hosts


def _hosts_for(role: str, count: int, slots: Mapping[Host, int | None]) -> list[Host]:
    accepted = FOR_WORKERS if role == "worker" else (role,)
    dedicated = {host: number for host, number in slots.items() if host.role in accepted}
    if not dedicated and role != "worker":
        shared = [host for host in slots if not host.role]
        if count and not shared:
            raise TfdistError(f"no host accepts a {role}: give a host role={role}, or drop role= from one")
        return [shared[index % len(shared) if role == "ps" else 0] for index in range(count)]
    hosts = []
    for host, number in dedicated.items():
        hosts += [host] * (count if number is None else min(number, count))
    if len(hosts) < count:
        available = ", ".join(f"{host.name}:{number}" for host, number in dedicated.items()) or "no host"
        option = "--workers-per-host N or " if role == "worker" else ""
        raise TfdistError(
            f"{counted(count, f'{role} task')} for {counted(len(hosts), 'slot')} ({available}): "
            f"add slots with {option}slots=N, or use fewer tasks"
        )
    return hosts[:count]


def slots_of(host: Host, gpus: int, per_host: int | None, devices: int) -> int:
    """Number of slots of a host: its slots=, else `per_host` workers, else one for every `devices` GPUs; at least 1.

    Raises:
        TfdistError: --workers-per-host contradicts the host's slots=.
    """
    if host.role not in FOR_WORKERS:
        return host.slots or 1
    if per_host is not None and host.slots not in (None, per_host):
        raise TfdistError(f"--workers-per-host {per_host}: {host.name} has slots={host.slots}; use only one of the two")
    return host.slots or per_host or max(1, gpus // devices)


def check_burned(hosts: Iterable[Host]) -> None:
    """Refuse hosts of which fewer than two have workers.

    Raises:
        TfdistError: they are too few.
    """
    if sum(host.role in FOR_WORKERS for host in hosts) < 2:
        raise TfdistError("--burn compares hosts with each other: name two or more with --hosts, or omit it")


WITHOUT_GPUS = ("none",)
"""The value of gpus= for a host whose tasks must not use its GPUs."""
BUSY = 0.1
"""Share of a machine's cores in use by other programs above which it is busy."""


@dataclass(frozen=True)
class Machine:
    """The resources of one host, or the sum of several hosts (`combined`)."""

    cores: tuple[int, ...]
    """CPU cores that tasks may use, the least used first."""
    gpus: tuple[str, ...]
    """Model names, in CUDA's order."""
    gpu_ids: tuple[str, ...] = ()
    """The GPUs' ids for CUDA_VISIBLE_DEVICES; empty: 0, 1, ..."""
    gpu_cores: tuple[tuple[int, ...], ...] = ()
    """The cores of each GPU's NUMA node, the hardware threads of a core side by side; empty: unknown."""
    python: str = sys.executable
    """The interpreter that runs tasks."""
    slots: int | None = None
    """Maximum number of workers, or of tasks of the host's role; None: no limit."""
    hosts: int = 1
    hide_gpus: bool = False
    """Tasks must not see any GPU of the host."""
    cores_in_use: tuple[int, ...] = ()
    """Those of `cores` to which other processes are pinned."""
    busy: float = 0.0
    """Share of all cores of the host, 0..1, that other programs use."""

    @property
    def gpus_per_process(self) -> int:
        """The most GPUs that one process can use: a process uses at most one MIG instance, but all parts of a GPU."""
        if len({*self.gpu_ids}) == 1:
            return len(self.gpus)
        return 1 if any(" MIG " in name for name in self.gpus) else len(self.gpus)

    def cut(self, parts: int | None) -> "Machine":
        """The machine with its one GPU as `parts` logical ones; unchanged if `parts` is None.

        Raises:
            MissingHardwareError: it has no GPU, or several.
        """
        if parts is None:
            return self
        if len(self.gpus) != 1:
            found = counted(len(self.gpus), "GPU")
            fix = "choose one with CUDA_VISIBLE_DEVICES or gpus=" if self.gpus else "run it on a machine with a GPU"
            raise MissingHardwareError(f"--set logical_gpus={parts} cuts one GPU, and {found} can be used: {fix}")
        return replace(
            self, gpus=self.gpus * parts, gpu_ids=(self.gpu_ids or ("0",)) * parts, gpu_cores=self.gpu_cores * parts
        )

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "Machine":
        """The machine that `describe` describes."""
        return from_json({**description, "python": description["executable"]}, cls)


Machines = Mapping[Host, Machine]
"""The machine of each host of a job, in the job's order of hosts."""


def local_machine() -> Machine:
    """The machine this process runs on."""
    return Machine.from_description(describe())


def local_machines(machine: Machine | None = None) -> Machines:
    """The machines of a job on localhost only: `machine`, by default this one."""
    return {LOCAL: machine or local_machine()}


def machines_of(hellos: Mapping[Host, Mapping[str, Any]]) -> Machines:
    """The machine of each host, from its agent's hello.

    Raises:
        TfdistError: a host lacks a GPU that its gpus= names, or has GPUs that cannot be used, or lacks its interface.
    """
    raise_problems(filter(None, (unusable_gpus(host, hello) for host, hello in hellos.items())))
    return {host.at_interface(hello): _machine(host, hello) for host, hello in hellos.items()}


def unusable_gpus(host: Host, hello: Mapping[str, Any]) -> Problem | None:
    """A host with device files of GPUs, but without a GPU that nvidia-smi lists. Tasks would silently use the CPU."""
    if hello["gpus"] or hello["gpus_hidden"] or not hello["gpu_devices"] or host.gpus == WITHOUT_GPUS:
        return None
    what = f"/dev has {counted(hello['gpu_devices'], 'GPU')}, but nvidia-smi lists none, so tasks would use the CPU"
    choice = "set CUDA_VISIBLE_DEVICES=-1" if host.local else "write gpus=none for it in the hostfile"
    fix = (
        "run 'nvidia-smi' on the host and follow its advice (a container needs the driver's libraries, as with "
        f"'docker run --gpus all'); to use the CPU, {choice}"
    )
    return Problem(what, fix, host.name)


def _machine(host: Host, hello: Mapping[str, Any]) -> Machine:
    machine = Machine.from_description(hello)
    if host.gpus == WITHOUT_GPUS:
        return replace(machine, gpus=(), gpu_ids=(), gpu_cores=(), hide_gpus=True)
    if not host.gpus:
        return machine
    ids, uuids = hello["gpu_ids"], hello["gpu_uuids"]
    indices = []
    for name in host.gpus:
        index = find_gpu(name, hello)
        if index is None:
            known = ", ".join(ids) or "none"
            raise TfdistError(f"{host.name} has no GPU {name!r}: correct gpus=; it has {known}")
        indices.append(index)
    if len(set(indices)) < len(indices):
        raise TfdistError(f"{host.name}: gpus={','.join(host.gpus)} names a GPU twice: list each GPU once")
    chosen = [name if name in ids else uuids[index] for name, index in zip(host.gpus, indices, strict=True)]
    return replace(
        machine,
        gpus=tuple(machine.gpus[index] for index in indices),
        gpu_ids=tuple(chosen),
        gpu_cores=tuple(machine.gpu_cores[index] for index in indices if machine.gpu_cores),
    )


def find_gpu(name: str, hello: Mapping[str, Any]) -> int | None:
    """Index among a host's visible GPUs of the one with this id, or the only one whose UUID starts so; None: no GPU."""
    if name in hello["gpu_ids"]:
        return list(hello["gpu_ids"]).index(name)
    matches = [index for index, uuid in enumerate(hello["gpu_uuids"]) if uuid.startswith(name)]
    return matches[0] if len(matches) == 1 else None


def combined(machines: Machines) -> Machine:
    """The sum of all machines, as if they were one host; a single machine is returned unchanged.

    GPUs and slots are those of hosts that accept workers.
    """
    if len(machines) == 1:
        return next(iter(machines.values()))
    cores = sum(len(machine.cores) for machine in machines.values())
    workers = [machine for host, machine in machines.items() if host.role in FOR_WORKERS]
    gpus = tuple(gpu for machine in workers for gpu in machine.gpus)
    slots = sum(machine.slots or 1 for machine in workers)
    return Machine(tuple(range(cores)), gpus, slots=slots, hosts=len(machines))


def assign_slots(machines: Machines, per_host: int | None, devices: int) -> Machines:
    """The machines with their number of slots, by `slots_of`.

    Args:
        machines: of the hosts that the user named.
        per_host: --workers-per-host.
        devices: devices of each worker.

    Raises:
        TfdistError: --workers-per-host contradicts a host's slots=.
    """
    return {
        host: replace(machine, slots=slots_of(host, len(machine.gpus), per_host, devices))
        for host, machine in machines.items()
    }
