"""Which task runs on which host. Pure."""

from collections.abc import Iterable, Mapping

from tfdist.launch.cluster import Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host

FOR_WORKERS = ("", "worker")
"""Roles of hosts that take workers."""


def place(roles: Mapping[str, int], slots: Mapping[Host, int | None]) -> dict[Task, Host]:
    """A host for every task, filled in the order of the hosts; tasks in the order of roles and index.

    Workers take slots. A host with a role takes that role's tasks only, as many as its slots. Where no host has their
    role, chief and evaluator go to the first host without one and the parameter servers to one such host after the
    other; beside workers they take no slot.

    Args:
        roles: how many tasks of each.
        slots: of every host, in their order; None: room for all.

    Raises:
        TfdistError: they do not fit, or a host would have nothing to do.
    """
    check_roles(roles, slots)
    placed = {
        Task(role, index): host
        for role, count in roles.items()
        for index, host in enumerate(_hosts_for(role, count, slots))
    }
    idle = [host.name for host in slots if host not in placed.values()]
    if idle:
        raise TfdistError(f"nothing is left for {', '.join(idle)} to do: ask for more tasks, or --exclude it")
    return placed


def _hosts_for(role: str, count: int, slots: Mapping[Host, int | None]) -> list[Host]:
    """A host for each of the `count` tasks of one role."""
    own = [host for host in slots if host.role == role]
    free = [host for host in slots if not host.role]
    if role == "worker" or own:
        takers = [host for host in slots if host in own or (role == "worker" and host in free)]
        return _rooms({host: slots[host] for host in takers}, count, role)
    if count and not free:
        raise TfdistError(f"no host takes a {role}: give one role={role}, or leave role= away from one")
    return [free[index % len(free) if role == "ps" else 0] for index in range(count)]


def check_roles(roles: Mapping[str, int], hosts: Iterable[Host]) -> None:
    """A host for a role that the job does not have would be idle.

    Raises:
        TfdistError: there is one.
    """
    for host in hosts:
        if host.role and not roles.get(host.role):
            raise TfdistError(
                f"{host.name} has role={host.role}, and this job has no {host.role}: leave the role or the host away"
            )


def _rooms(slots: Mapping[Host, int | None], count: int, role: str) -> list[Host]:
    """The first `count` slots."""
    rooms = [host for host, number in slots.items() for _ in range(count if number is None else min(number, count))]
    if len(rooms) < count:  # so no host had more room than it takes to hold all
        offered = ", ".join(f"{host.name}:{number}" for host, number in slots.items()) or "none"
        raise TfdistError(
            f"{count} {role} tasks were asked for and there are {len(rooms)} slots for them ({offered}): "
            f"give hosts more slots ({'--workers-per-host N, ' if role == 'worker' else ''}slots=N), or ask for fewer"
        )
    return rooms[:count]


def slots_of(host: Host, gpus: int, per_host: int | None, devices: int) -> int:
    """A host's own number, else for workers `per_host`, else one for every `devices` GPUs; one at least.

    Raises:
        TfdistError: --workers-per-host and the host's own number contradict each other.
    """
    if host.role not in FOR_WORKERS:
        return host.slots or 1
    if per_host is not None and host.slots not in (None, per_host):
        raise TfdistError(f"--workers-per-host {per_host}, but {host.name} has {host.slots} slots: give one of them")
    return host.slots or per_host or max(1, gpus // devices)
