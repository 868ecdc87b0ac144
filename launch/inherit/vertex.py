"""Vertex AI: CLUSTER_SPEC (https://cloud.google.com/vertex-ai/docs/training/distributed-training).

The first worker pool has the primary replica, the second the workers, the third the parameter servers, the fourth the
evaluators.
"""

import json
from collections.abc import Mapping
from typing import Any

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import TfdistError

_ROLES = {"workerpool0": "chief", "workerpool1": "worker", "workerpool2": "ps", "workerpool3": "evaluator"}


def read(environ: Mapping[str, str], port: int | None) -> tuple[Cluster, Task]:
    """The replicas by role, with Vertex AI's addresses and ports.

    Raises:
        TfdistError: CLUSTER_SPEC is malformed.
    """
    text = environ["CLUSTER_SPEC"]
    try:
        spec: dict[str, Any] = json.loads(text)
        addresses = {_ROLES[pool]: tuple(map(str, hosts)) for pool, hosts in spec["cluster"].items() if hosts}
        task = Task(_ROLES[spec["task"]["type"]], int(spec["task"]["index"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        shape = 'JSON with addresses of workerpool0 to workerpool3 under "cluster", and "type" and "index" under "task"'
        raise TfdistError(f"CLUSTER_SPEC={text!r}: must be {shape}; correct or unset it") from None
    if not 0 <= task.index < len(addresses.get(task.role, ())):
        raise TfdistError(f"CLUSTER_SPEC={text!r}: its task is not in its cluster; correct one of them")
    return Cluster(addresses), task
