"""Which tasks a job has and where they are: pure data, and the TF_CONFIG that TensorFlow reads from it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfdist.launch.errors import TfdistError

ROLES = ("chief", "worker", "ps", "evaluator")
"""The only task types that TF_CONFIG knows."""


@dataclass(frozen=True, order=True)
class Task:
    """One process of a job."""

    role: str
    index: int

    @property
    def name(self) -> str:
        """`worker-1`: how the task is called in logs, folders and messages."""
        return f"{self.role}-{self.index}"


@dataclass(frozen=True)
class Cluster:
    """The addresses (`host:port`) of every task, by role and in order of index.

    A job without a cluster (one task, or independent ones) has no addresses at all.
    """

    addresses: Mapping[str, tuple[str, ...]]

    def tf_config(self, task: Task) -> str | None:
        """The value of TF_CONFIG for `task`, or None where the job has no cluster.

        The evaluator is in nobody's cluster but its own
        (https://www.tensorflow.org/guide/distributed_training#TF_CONFIG).
        """
        if not self.addresses:
            return None
        peers = {
            role: list(hosts) for role, hosts in self.addresses.items() if role != "evaluator" or role == task.role
        }
        return json.dumps({"cluster": peers, "task": {"type": task.role, "index": task.index}})


def parse_tf_config(text: str) -> tuple[Cluster, Task]:
    """The cluster and the task that a TF_CONFIG value describes.

    Raises:
        TfdistError: it is not what TensorFlow would accept; the sentence says where.
    """
    try:
        config: dict[str, Any] = json.loads(text)
        addresses = {str(role): _endpoints(hosts) for role, hosts in config["cluster"].items()}
        task = Task(str(config["task"]["type"]), int(config["task"]["index"]))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise TfdistError(
            f"TF_CONFIG in the environment is not a cluster and a task ({text!r}: {error!r}): correct it, or unset it"
        ) from None
    unknown = sorted({*addresses, task.role} - set(ROLES))
    if unknown:
        raise TfdistError(f"TF_CONFIG names the task type {unknown[0]!r}: TensorFlow knows {', '.join(ROLES)}")
    if not 0 <= task.index < len(addresses.get(task.role, ())):
        raise TfdistError(f"TF_CONFIG's task {task.role}:{task.index} is not in its own cluster: correct its index")
    return Cluster(addresses), task


def _endpoints(hosts: Any) -> tuple[str, ...]:
    if not isinstance(hosts, list):
        raise TypeError(f"{hosts!r} is no list of addresses")
    return tuple(map(str, hosts))
