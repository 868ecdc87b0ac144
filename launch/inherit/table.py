"""The launchers that describe a cluster in the environment: the variables of each, how to read them, and addresses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfdist.launch.cluster import Cluster, Task, check_ports, parse_tf_config
from tfdist.launch.errors import TfdistError
from tfdist.launch.host_list import place_in
from tfdist.launch.hosts.host import Host
from tfdist.launch.schedulers import slurm
from tfdist.launch.str_enum import StrEnum
from tfdist.launch.text import check_name
from tfdist.launch.typed_json import from_json, parse_json

DEFAULT_PORT = 2222
"""Port of the first task on a host, as under TFJob and Vertex AI, if the environment has no ports."""


def split(address: str) -> tuple[str, int]:
    """Host and port of an address `host:port`; the brackets around an IPv6 address are removed.

    Raises:
        TfdistError: it has no port, or a control character.
    """
    check_name("the address in the environment,", address)
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise TfdistError(f"the address {address!r} in the environment has no port: write it as host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


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


class SourceName(StrEnum):
    """What describes the cluster and this task in the environment."""

    AUTO = "auto"
    """The first of the others whose variables are set; none: this is the only task."""
    TF_CONFIG = "tf-config"
    SLURM = "slurm"
    SKYPILOT = "skypilot"
    SAGEMAKER = "sagemaker"
    VERTEX = "vertex"


_SKYPILOT_NODES, _SKYPILOT_RANK = "SKYPILOT_NODE_IPS", "SKYPILOT_NODE_RANK"
_SAGEMAKER_HOSTS, _SAGEMAKER_HOST = "SM_HOSTS", "SM_CURRENT_HOST"
_VERTEX = "CLUSTER_SPEC"
"""Source: https://cloud.google.com/vertex-ai/docs/training/distributed-training"""
_VERTEX_ROLES = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps", "workerpool3": "evaluator"}


Reader = Callable[[Mapping[str, str], int | None], tuple[Cluster, Task]]


@dataclass(frozen=True)
class Source:
    """One row of the table."""

    variables: tuple[str, ...]
    """All of them are needed. The first one has the cluster."""
    read: Reader
    """Reads the environment and the value of --port."""
    has_ports: bool = False


@dataclass(frozen=True)
class ClusterRole:
    """The task that this process is, and its cluster, normalized."""

    cluster: Cluster
    task: Task
    origin: str
    """The variable that has the cluster."""
    named: Task
    """The task as the environment names it."""


def _workers(read: Callable[[Mapping[str, str]], tuple[Sequence[str], int]]) -> Reader:
    """A reader of an environment that has the host of each worker, and the index of this one."""

    def read_cluster(environ: Mapping[str, str], port: int | None) -> tuple[Cluster, Task]:
        hosts, index = read(environ)
        return workers_on(hosts, port), Task("worker", index)

    return read_cluster


def _read_sagemaker(environ: Mapping[str, str]) -> tuple[Sequence[str], int]:
    """The hosts in SageMaker's order.

    Source: https://github.com/aws/sagemaker-training-toolkit, ENVIRONMENT_VARIABLES.md

    Raises:
        TfdistError: the hosts are no JSON list, or this host is not one of them.
    """
    text, host = environ[_SAGEMAKER_HOSTS], environ[_SAGEMAKER_HOST]
    try:
        hosts = from_json(parse_json(text), tuple[str, ...])
    except ValueError:
        hosts = ()
    if not all(hosts) or not hosts:
        raise TfdistError(
            f'{_SAGEMAKER_HOSTS}={text!r}: must be a JSON list of names, as in ["algo-1", "algo-2"]; correct it'
        )
    if host not in hosts:
        raise TfdistError(f"{_SAGEMAKER_HOST}={host}: not one of {_SAGEMAKER_HOSTS}={text}; correct one of them")
    return hosts, hosts.index(host)


def _read_skypilot(environ: Mapping[str, str]) -> tuple[Sequence[str], int]:
    """The nodes in SkyPilot's order.

    Source: https://docs.skypilot.co/en/stable/running-jobs/environment-variables.html

    Raises:
        TfdistError: the rank is not that of a node.
    """
    nodes = environ[_SKYPILOT_NODES].split()
    return nodes, place_in(environ, _SKYPILOT_RANK, len(nodes), f"nodes of {_SKYPILOT_NODES}; unset both")


SOURCES: Mapping[SourceName, Source] = {
    SourceName.TF_CONFIG: Source(("TF_CONFIG",), lambda env, _: parse_tf_config(env["TF_CONFIG"]), has_ports=True),
    SourceName.VERTEX: Source(
        (_VERTEX,), lambda env, _: parse_tf_config(env[_VERTEX], _VERTEX, _VERTEX_ROLES), has_ports=True
    ),
    SourceName.SAGEMAKER: Source((_SAGEMAKER_HOSTS, _SAGEMAKER_HOST), _workers(_read_sagemaker)),
    SourceName.SKYPILOT: Source((_SKYPILOT_NODES, _SKYPILOT_RANK), _workers(_read_skypilot)),
    SourceName.SLURM: Source(slurm.STEP_VARIABLES, _workers(slurm.tasks_of_step)),
}
"""Environments in the order of `detect`: a scheduler's variables are also in that of the launchers that it runs."""


def detect(environ: Mapping[str, str]) -> SourceName | None:
    """The first source whose variables are all set and not empty; None: no source."""
    return next((name for name, source in SOURCES.items() if all(map(environ.get, source.variables))), None)


def inherited(name: SourceName, environ: Mapping[str, str], port: int | None, flag: str) -> ClusterRole | None:
    """This task and its cluster; None if `name` is auto and no source is set.

    Args:
        name: the source.
        environ: of this process.
        port: value of --port, for sources without ports.
        flag: the option that chose the source, for messages.

    Raises:
        TfdistError: a variable is missing or malformed, or the source has ports and one was given.
    """
    found = detect(environ) if name is SourceName.AUTO else name
    if found is None:
        return None
    source = SOURCES[found]
    missing = [variable for variable in source.variables if not environ.get(variable)]
    if missing:
        raise TfdistError(f"{flag}: {missing[0]} is not set in the environment; set it, or omit the option")
    if port is not None and source.has_ports:
        raise TfdistError(f"--port {port}: {source.variables[0]} in the environment has the ports; omit --port")
    cluster, named = source.read(environ, port)
    for addresses in cluster.addresses.values():
        for address in addresses:
            split(address)  # refuses one without a port
    return ClusterRole(*normalize(cluster, named), source.variables[0], named)


def normalize(cluster: Cluster, task: Task) -> tuple[Cluster, Task]:
    """The cluster without a chief that no parameter server needs: it becomes worker 0, and the workers move up by one.

    Such a chief is a worker that also saves (https://www.tensorflow.org/guide/distributed_training#TF_CONFIG), and
    Vertex AI and TFJob have one in every cluster. A cluster with parameter servers is returned as it is. An evaluator
    stays, also one that is not in the cluster.
    """
    chiefs = cluster.addresses.get("chief", ())
    if not chiefs or cluster.addresses.get("ps"):
        return cluster, task
    others = {role: hosts for role, hosts in cluster.addresses.items() if role not in ("chief", "worker")}
    workers = Cluster({"worker": (*chiefs, *cluster.addresses.get("worker", ())), **others})
    first = {"chief": 0, "worker": len(chiefs)}
    return workers, Task("worker", first[task.role] + task.index) if task.role in first else task
