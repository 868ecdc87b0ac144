"""The table of sources: the variables of each, how to read them, and one form for the clusters that they describe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.inherit import sagemaker, skypilot, slurm, tf_config, vertex
from tfdist.launch.inherit.addresses import check_addresses
from tfdist.launch.inherit.source import SourceName


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
    match task:
        case Task("chief", index):
            return workers, Task("worker", index)
        case Task("worker", index):
            return workers, Task("worker", index + len(chiefs))
    return workers, task


@dataclass(frozen=True)
class Source:
    """One row of the table."""

    variables: tuple[str, ...]
    """All of them are needed. The first one has the cluster."""
    read: Callable[[Mapping[str, str], int | None], tuple[Cluster, Task]]
    """Reads the environment and the value of --port."""
    has_ports: bool = False


@dataclass(frozen=True)
class Inherited:
    """The task that this process is, and its cluster, normalized."""

    cluster: Cluster
    task: Task
    origin: str
    """The variable that has the cluster."""
    named: Task
    """The task as the environment names it."""


SOURCES: Mapping[SourceName, Source] = MappingProxyType(
    {
        SourceName.TF_CONFIG: Source(("TF_CONFIG",), tf_config.read, has_ports=True),
        SourceName.VERTEX: Source(("CLUSTER_SPEC",), vertex.read, has_ports=True),
        SourceName.SAGEMAKER: Source(("SM_HOSTS", "SM_CURRENT_HOST"), sagemaker.read),
        SourceName.SKYPILOT: Source(("SKYPILOT_NODE_IPS", "SKYPILOT_NODE_RANK"), skypilot.read),
        SourceName.SLURM: Source(("SLURM_STEP_NODELIST", "SLURM_PROCID"), slurm.read),
    }
)
"""Environments in the order of `detect`: a scheduler's variables are also in that of the launchers that it runs."""


def detect(environ: Mapping[str, str]) -> SourceName | None:
    """The first source whose variables are all set and not empty; None: no source."""
    return next((name for name, source in SOURCES.items() if all(map(environ.get, source.variables))), None)


def inherited(name: SourceName, environ: Mapping[str, str], port: int | None, flag: str) -> Inherited | None:
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
    check_addresses(cluster)
    return Inherited(*normalize(cluster, named), source.variables[0], named)
