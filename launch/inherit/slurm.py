"""Slurm: `srun tfdist launch --inherit slurm`, a worker for each task of the step.

Source: the output environment variables of srun (https://slurm.schedmd.com/srun.html).
"""

import re
from collections.abc import Mapping

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.parse import parse_hosts
from tfdist.launch.inherit.addresses import workers_on

_NODES = "SLURM_STEP_NODELIST"
_TASKS = "SLURM_STEP_TASKS_PER_NODE"
_RANK = "SLURM_PROCID"
_NODE = "SLURMD_NODENAME"
_FIX = "run 'srun tfdist launch --inherit slurm' with --distribution=block, and without --het-group"


def read(environ: Mapping[str, str], port: int | None) -> tuple[Cluster, Task]:
    """The tasks of this step as workers, in order of their rank: the tasks of the first node come first.

    Raises:
        TfdistError: a variable is malformed, or the step distributes its tasks over the nodes in another way.
    """
    nodes = [host.name for host in parse_hosts(environ[_NODES], _NODES)]
    counts = _counts(environ.get(_TASKS, f"1(x{len(nodes)})"))
    if len(counts) != len(nodes):
        raise TfdistError(f"{_TASKS}={environ[_TASKS]}: not a number for each node of {environ[_NODES]}; {_FIX}")
    hosts = [node for node, count in zip(nodes, counts, strict=True) for _ in range(count)]
    rank = environ[_RANK]
    if not rank.isdecimal() or int(rank) >= len(hosts):
        raise TfdistError(f"{_RANK}={rank}: not one of the {len(hosts)} tasks of this step; {_FIX}")
    if environ.get(_NODE, hosts[int(rank)]) != hosts[int(rank)]:
        raise TfdistError(f"{_RANK}={rank} runs on {environ[_NODE]}, not on {hosts[int(rank)]}; {_FIX}")
    return workers_on(hosts, port), Task("worker", int(rank))


def _counts(text: str) -> list[int]:
    """The numbers in `2(x3),1`: 2, 2, 2, 1."""
    parts = [re.fullmatch(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?", part) for part in text.split(",")]
    if not all(parts):
        raise TfdistError(f"{_TASKS}={text!r}: must be numbers as in 2(x3),1; {_FIX}")
    return [int(part[1]) for part in parts if part for _ in range(int(part[2] or 1))]
