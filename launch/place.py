"""Which task runs on which host. No I/O."""

from collections.abc import Mapping

from tfdist.launch.cluster import Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.text import counted

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
    idle = [host.name for host in slots if host not in hosts.values()]
    if idle:
        raise TfdistError(f"no task is left for {', '.join(idle)}: use more workers, or --exclude {idle[0]}")
    return hosts


def _hosts_for(role: str, count: int, slots: Mapping[Host, int | None]) -> list[Host]:
    accepted = FOR_WORKERS if role == "worker" else (role,)
    dedicated = {host: number for host, number in slots.items() if host.role in accepted}
    if dedicated or role == "worker":
        return _fill(dedicated, count, role)
    shared = [host for host in slots if not host.role]
    if count and not shared:
        raise TfdistError(f"no host accepts a {role}: give a host role={role}, or drop role= from one")
    return [shared[index % len(shared) if role == "ps" else 0] for index in range(count)]


def _fill(slots: Mapping[Host, int | None], count: int, role: str) -> list[Host]:
    hosts = [host for host, number in slots.items() for _ in range(count if number is None else min(number, count))]
    if len(hosts) < count:
        available = ", ".join(f"{host.name}:{number}" for host, number in slots.items()) or "no host"
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
