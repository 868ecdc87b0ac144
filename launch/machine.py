"""The cores and GPUs that hosts offer to a job."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfdist.launch.agents import agent
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL, Host
from tfdist.launch.place import FOR_WORKERS, slots_of


@dataclass(frozen=True)
class Machine:
    """The resources of one host, or the sum of several hosts (`combined`)."""

    cores: tuple[int, ...]
    """CPU cores in the affinity mask."""
    gpus: tuple[str, ...]
    """Model names, in CUDA's order."""
    gpu_ids: tuple[str, ...] = ()
    """The GPUs' ids for CUDA_VISIBLE_DEVICES; empty: 0, 1, ..."""
    python: str = sys.executable
    """The interpreter that runs tasks."""
    slots: int | None = None
    """Maximum number of workers, or of tasks of the host's role; None: no limit."""
    hosts: int = 1

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "Machine":
        """From the result of `agent.describe`."""
        return cls(
            tuple(description["cores"]),
            tuple(description["gpus"]),
            tuple(description["gpu_ids"]),
            str(description["executable"]),
        )


Machines = Mapping[Host, Machine]
"""The machine of each host of a job, in the job's order of hosts."""


def local_machine() -> Machine:
    """The machine this process runs on."""
    return Machine.from_description(agent.describe())


def local_machines(machine: Machine | None = None) -> Machines:
    """The machines of a job on localhost only: `machine`, by default this one."""
    return {LOCAL: machine or local_machine()}


def machines_of(hellos: Mapping[Host, Mapping[str, Any]]) -> Machines:
    """The machine of each host, from its agent's hello.

    Raises:
        TfdistError: a host lacks a GPU that its gpus= names.
    """
    return {host: _with_named_gpus(Machine.from_description(hello), host) for host, hello in hellos.items()}


def _with_named_gpus(machine: Machine, host: Host) -> Machine:
    if not host.gpus:
        return machine
    ids = machine.gpu_ids or tuple(map(str, range(len(machine.gpus))))
    models = dict(zip(ids, machine.gpus, strict=True))
    missing = [gpu for gpu in host.gpus if gpu not in models]
    if missing:
        raise TfdistError(f"{host.name} has no GPU {missing[0]!r}: correct gpus=; it has {', '.join(ids) or 'none'}")
    return replace(machine, gpus=tuple(models[gpu] for gpu in host.gpus), gpu_ids=host.gpus)


def combined(machines: Machines) -> Machine:
    """The sum of all machines, as if they were one host; a single machine is returned unchanged."""
    if len(machines) == 1:
        return next(iter(machines.values()))
    cores = sum(len(machine.cores) for machine in machines.values())
    gpus = tuple(gpu for machine in machines.values() for gpu in machine.gpus)
    slots = sum(machine.slots or 1 for host, machine in machines.items() if host.role in FOR_WORKERS)
    return Machine(tuple(range(cores)), gpus, slots=slots, hosts=len(machines))


def assign_slots(machines: Machines, per_host: int | None, devices: int) -> Machines:
    """The machines with their number of slots, by `place.slots_of`.

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
