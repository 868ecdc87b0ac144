"""The tasks of a job and their addresses, and TF_CONFIG, through which TensorFlow reads them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.text import counted


def check_ports(base_port: int, count: int, option: str = "--port ") -> None:
    """Check that `count` ports from `base_port` on exist; `option` names the setting in the message.

    Raises:
        TfdistError: one of them does not exist.
    """
    if not 1 <= base_port <= 65536 - count:
        raise TfdistError(
            f"{option}{base_port}: invalid for {counted(count, 'task')} with consecutive ports; "
            f"use 1024 to {65536 - count}, or omit it"
        )


ROLES = ("chief", "worker", "ps", "evaluator")
"""The task types that TF_CONFIG allows."""
_NAMES = {**{role: role for role in ROLES}, "master": "chief"}
"""Roles by their names in TF_CONFIG. TensorFlow 1, TFJob and older configurations call the chief master."""


@dataclass(frozen=True, order=True)
class Task:
    """One process of a job."""

    role: str
    index: int

    @property
    def name(self) -> str:
        """The task's name in logs, folders and messages, e.g. `worker-1`."""
        return f"{self.role}-{self.index}"


def task_order(name: str) -> tuple[str, int]:
    """Sorts names of tasks by role and number: worker-2 before worker-10."""
    role, _, index = name.rpartition("-")
    return role, int(index)


@dataclass(frozen=True)
class Cluster:
    """The addresses (`host:port`) of all tasks, by role and in order of index.

    Empty for a job without a cluster: one task, or several independent ones.
    """

    addresses: Mapping[str, tuple[str, ...]]

    def port(self, task: Task) -> int | None:
        """The port of `task`; None if the job has no cluster."""
        addresses = self.addresses.get(task.role, ())
        return int(addresses[task.index].rpartition(":")[2]) if task.index < len(addresses) else None

    def tf_config(self, task: Task) -> str | None:
        """TF_CONFIG of `task`; None if the job has no cluster.

        Only an evaluator's TF_CONFIG names evaluators
        (https://www.tensorflow.org/guide/distributed_training#TF_CONFIG).
        """
        if not self.addresses:
            return None
        peers = json.dumps(dict(self.addresses)) if task.role == "evaluator" else self._peers
        return f'{{"cluster": {peers}, "task": {json.dumps({"type": task.role, "index": task.index})}}}'

    @cached_property
    def _peers(self) -> str:
        return json.dumps({role: hosts for role, hosts in self.addresses.items() if role != "evaluator"})


def parse_tf_config(text: str, variable: str = "TF_CONFIG", names: Mapping[str, str] = _NAMES) -> tuple[Cluster, Task]:
    """The cluster and the task in a TF_CONFIG value. A master is a chief; an evaluator need not be in its cluster.

    Args:
        text: the value.
        variable: that holds it, for messages.
        names: the roles, by their names in the value.

    Raises:
        TfdistError: TensorFlow would reject the value.
    """
    try:
        config: dict[str, Any] = json.loads(text)
        if not all(isinstance(hosts, list) for hosts in config["cluster"].values()):
            raise TypeError
        given = {str(name): tuple(map(str, hosts)) for name, hosts in config["cluster"].items() if hosts}
        name = str(config["task"]["type"])
        index = int(config["task"]["index"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        shape = 'JSON with lists of addresses under "cluster", and "type" and "index" under "task"'
        raise TfdistError(f"{variable}={text!r}: must be {shape}; correct or unset it") from None
    unknown = sorted({*given, name} - names.keys())
    if unknown:
        raise TfdistError(f"{variable}: unknown task type {unknown[0]!r}; use {', '.join(names)}")
    addresses = {names[each]: hosts for each, hosts in given.items()}
    task = Task(names[name], index)
    if len(addresses) < len(given):
        raise TfdistError("TF_CONFIG: its cluster has a master and a chief, which are the same; remove one of them")
    outside = task.role == "evaluator" and "evaluator" not in addresses  # as in TensorFlow's guide
    if task.index < 0 or not (outside or task.index < len(addresses.get(task.role, ()))):
        raise TfdistError(f"{variable}: its task {name}:{index} is not in its cluster; correct one of them")
    return Cluster(addresses), task
