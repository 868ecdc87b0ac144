"""The addresses of tasks: taken apart, and chosen where a launcher names only the hosts."""

from collections.abc import Iterator, Sequence

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import check_ports
from tfdist.launch.text import check_name

DEFAULT_PORT = 2222
"""Port of the first task on a host, as under TFJob and Vertex AI, if the environment has no ports."""
_LARGEST = 65535


def split(address: str) -> tuple[str, int]:
    """Host and port of an address `host:port`; the brackets around an IPv6 address are removed.

    Raises:
        TfdistError: it has no port, or a control character.
    """
    check_name("the address in the environment,", address)
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 1 <= int(port) <= _LARGEST):
        raise TfdistError(f"the address {address!r} in the environment has no port: write it as host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_addresses(cluster: Cluster) -> None:
    """Raise a TfdistError if an address of the cluster has no port."""
    for address in (address for addresses in cluster.addresses.values() for address in addresses):
        split(address)


def workers_on(hosts: Sequence[str], port: int | None) -> Cluster:
    """A cluster with a worker for each entry; of a host that is listed n times, they have consecutive ports.

    Args:
        hosts: names or addresses, in order of the workers.
        port: of the first worker on each host; None: DEFAULT_PORT.

    Raises:
        TfdistError: a port does not exist.
    """
    first = DEFAULT_PORT if port is None else port
    check_ports(first, max(map(hosts.count, hosts)))
    ports = (first + hosts[:index].count(host) for index, host in enumerate(hosts))
    return Cluster({"worker": tuple(Host(host, host).endpoint(port) for host, port in zip(hosts, ports, strict=True))})


def earlier_on_host(cluster: Cluster, task: Task) -> int:
    """Number of tasks of the same role with a lower index on the same host."""
    hosts = [split(address)[0] for address in cluster.addresses.get(task.role, ())[: task.index + 1]]
    return hosts[:-1].count(hosts[-1]) if hosts else 0


def on_same_host(cluster: Cluster, task: Task) -> int:
    """Number of tasks of the same role on the task's host, it included; 1 if it is not in the cluster."""
    hosts = [split(address)[0] for address in cluster.addresses.get(task.role, ())]
    return hosts.count(hosts[task.index]) if task.index < len(hosts) else 1


def peers_of(cluster: Cluster, task: Task) -> Iterator[tuple[Task, str]]:
    """The other tasks of the cluster with their addresses, without evaluators, which nothing connects to."""
    for role, addresses in cluster.addresses.items():
        for index, address in enumerate(addresses):
            if role != "evaluator" and Task(role, index) != task:
                yield Task(role, index), address
