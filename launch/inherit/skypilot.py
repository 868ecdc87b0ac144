"""SkyPilot: a worker on each node (https://docs.skypilot.co/en/stable/running-jobs/environment-variables.html)."""

from collections.abc import Mapping

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.inherit.addresses import workers_on

_ADDRESSES = "SKYPILOT_NODE_IPS"
_RANK = "SKYPILOT_NODE_RANK"


def read(environ: Mapping[str, str], port: int | None) -> tuple[Cluster, Task]:
    """The nodes as workers, in SkyPilot's order.

    Raises:
        TfdistError: the rank is not that of a node.
    """
    nodes, rank = environ[_ADDRESSES].split(), environ[_RANK]
    if not rank.isdecimal() or int(rank) >= len(nodes):
        raise TfdistError(f"{_RANK}={rank}: not one of the {len(nodes)} nodes of {_ADDRESSES}; unset both")
    return workers_on(nodes, port), Task("worker", int(rank))
