"""What one machine offers a job."""

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
    """The cores this process may use and the GPUs it can see."""

    cores: tuple[int, ...]
    gpus: tuple[str, ...]
    """Their names, in CUDA's order."""
    gpu_ids: tuple[str, ...] = ()
    """What each is called in CUDA_VISIBLE_DEVICES; empty: 0, 1, ..."""
    python: str = sys.executable
    """The interpreter that runs tasks there."""
    slots: int | None = None
    """How many workers (or tasks of its host's role) it takes; None: as many as there are."""
    hosts: int = 1
    """How many hosts these figures are the sum of."""

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> "Machine":
        """From what an agent says of its host."""
        return cls(
            tuple(description["cores"]),
            tuple(description["gpus"]),
            tuple(description["gpu_ids"]),
            str(description["executable"]),
        )

    def restricted_to(self, gpus: tuple[str, ...]) -> "Machine":
        """With these of its GPUs, as CUDA_VISIBLE_DEVICES calls them; all if none is named.

        Raises:
            KeyError: it has no such GPU.
        """
        if not gpus:
            return self
        ids = self.gpu_ids or tuple(map(str, range(len(self.gpus))))
        names = dict(zip(ids, self.gpus, strict=True))
        return replace(self, gpus=tuple(names[one] for one in gpus), gpu_ids=gpus)


Machines = Mapping[Host, Machine]
"""What every host of a job offers, in the job's order of hosts."""


def local_machines(machine: Machine | None = None) -> Machines:
    """A job's machines when localhost is its only host: `machine`, by default this one."""
    return {LOCAL: machine or local_machine()}


def machines_of(hellos: Mapping[Host, Mapping[str, Any]]) -> Machines:
    """What each host offers, from its agent's hello.

    Raises:
        TfdistError: a GPU that was named is missing.
    """
    return {host: _machine(host, hello) for host, hello in hellos.items()}


def _machine(host: Host, hello: Mapping[str, Any]) -> Machine:
    machine = Machine.from_description(hello)
    try:
        return machine.restricted_to(host.gpus)
    except KeyError as error:
        shown = ", ".join(machine.gpu_ids) or "none"
        raise TfdistError(f"{host.name} has no GPU {error}: it shows {shown}") from None


def combined(machines: Machines) -> Machine:
    """All hosts as if they were one machine, for counting what there is; a single one is itself."""
    if len(machines) == 1:
        return next(iter(machines.values()))
    cores = sum(len(machine.cores) for machine in machines.values())
    gpus = tuple(gpu for machine in machines.values() for gpu in machine.gpus)
    slots = sum(machine.slots or 1 for host, machine in machines.items() if host.role in FOR_WORKERS)
    return Machine(tuple(range(cores)), gpus, slots=slots, hosts=len(machines))


def assign_slots(machines: Machines, per_host: int | None, devices: int) -> Machines:
    """The machines with a number of slots each (`place.slots_of`).

    Args:
        machines: of the hosts that the user named.
        per_host: --workers-per-host.
        devices: how many each worker takes.

    Raises:
        TfdistError: --workers-per-host contradicts a host's own number.
    """
    return {
        host: replace(machine, slots=slots_of(host, len(machine.gpus), per_host, devices))
        for host, machine in machines.items()
    }


def local_machine() -> Machine:
    """This machine."""
    return Machine.from_description(agent.describe())
