"""The launchers that describe a cluster in the environment: the variables of each, how to read them, and addresses."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tfdist.launch.cluster import Cluster, Task, check_ports, parse_tf_config
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.hosts.parse import parse_hosts
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
_SLURM_NODES, _SLURM_RANK = "SLURM_STEP_NODELIST", "SLURM_PROCID"
_SLURM_TASKS, _SLURM_NODE = "SLURM_STEP_TASKS_PER_NODE", "SLURMD_NODENAME"
_SLURM_FIX = "run 'srun tfdist launch --inherit slurm' with --distribution=block, and without --het-group"
_SAGEMAKER_HOSTS, _SAGEMAKER_HOST = "SM_HOSTS", "SM_CURRENT_HOST"
_VERTEX = "CLUSTER_SPEC"
"""Source: https://cloud.google.com/vertex-ai/docs/training/distributed-training"""
_VERTEX_ROLES = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps", "workerpool3": "evaluator"}


@dataclass(frozen=True)
class Source:
    """One row of the table."""

    variables: tuple[str, ...]
    """All of them are needed. The first one has the cluster."""
    read: Callable[[Mapping[str, str], int | None], tuple[Cluster, Task]]
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


def _read_sagemaker(environ: Mapping[str, str], port: int | None) -> tuple[Cluster, Task]:
    """The hosts as workers, in SageMaker's order.

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
    return workers_on(hosts, port), Task("worker", hosts.index(host))


def _read_skypilot(environ: Mapping[str, str], port: int | None) -> tuple[Cluster, Task]:
    """The nodes as workers, in SkyPilot's order.

    Source: https://docs.skypilot.co/en/stable/running-jobs/environment-variables.html

    Raises:
        TfdistError: the rank is not that of a node.
    """
    nodes = environ[_SKYPILOT_NODES].split()
    rank = _rank(environ, _SKYPILOT_RANK, len(nodes), f"nodes of {_SKYPILOT_NODES}; unset both")
    return workers_on(nodes, port), Task("worker", rank)


def _rank(environ: Mapping[str, str], variable: str, count: int, what: str) -> int:
    """The number in a variable, below `count`."""
    rank = environ[variable]
    if not rank.isdecimal() or int(rank) >= count:
        raise TfdistError(f"{variable}={rank}: not one of the {count} {what}")
    return int(rank)


def _read_slurm(environ: Mapping[str, str], port: int | None) -> tuple[Cluster, Task]:
    """The tasks of this step as workers, in order of their rank: the tasks of the first node come first.

    Source: the output environment variables of srun (https://slurm.schedmd.com/srun.html).

    Raises:
        TfdistError: a variable is malformed, or the step distributes its tasks over the nodes in another way.
    """
    nodes = [host.name for host in parse_hosts(environ[_SLURM_NODES], _SLURM_NODES)]
    text = environ.get(_SLURM_TASKS, f"1(x{len(nodes)})")  # 2(x3),1 is 2, 2, 2, 1
    parts = [re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part) for part in text.split(",")]
    if not all(parts):
        raise TfdistError(f"{_SLURM_TASKS}={text!r}: must be numbers as in 2(x3),1; {_SLURM_FIX}")
    counts: list[int] = []
    for part in filter(None, parts):
        counts += [int(part[1])] * int(part[2] or 1)
    if len(counts) != len(nodes):
        raise TfdistError(f"{_SLURM_TASKS}={text}: not a number for each node of {environ[_SLURM_NODES]}; {_SLURM_FIX}")
    hosts = [node for node, count in zip(nodes, counts, strict=True) for _ in range(count)]
    rank = _rank(environ, _SLURM_RANK, len(hosts), f"tasks of this step; {_SLURM_FIX}")
    if environ.get(_SLURM_NODE, hosts[rank]) != hosts[rank]:
        raise TfdistError(f"{_SLURM_RANK}={rank} runs on {environ[_SLURM_NODE]}, not on {hosts[rank]}; {_SLURM_FIX}")
    return workers_on(hosts, port), Task("worker", rank)


SOURCES: Mapping[SourceName, Source] = {
    SourceName.TF_CONFIG: Source(("TF_CONFIG",), lambda env, _: parse_tf_config(env["TF_CONFIG"]), has_ports=True),
    SourceName.VERTEX: Source(
        (_VERTEX,), lambda env, _: parse_tf_config(env[_VERTEX], _VERTEX, _VERTEX_ROLES), has_ports=True
    ),
    SourceName.SAGEMAKER: Source((_SAGEMAKER_HOSTS, _SAGEMAKER_HOST), _read_sagemaker),
    SourceName.SKYPILOT: Source((_SKYPILOT_NODES, _SKYPILOT_RANK), _read_skypilot),
    SourceName.SLURM: Source((_SLURM_NODES, _SLURM_RANK), _read_slurm),
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
