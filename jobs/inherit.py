"""What follows for a launch from the cluster that `--inherit` finds in the environment. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfdist.launch.cluster import Cluster, Task
from tfdist.launch.environment import BARRIER_SECRET
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.inherit.leader import Key, Rendezvous
from tfdist.launch.inherit.table import ClusterRole, SourceName, inherited, on_same_host
from tfdist.launch.job import Job
from tfdist.launch.machine import Machine
from tfdist.strategies.catalog import CATALOG, Strategy
from tfdist.strategies.choice import StrategyChoice
from tfdist.strategies.options import StrategyName

ATTEMPT = "TFDIST_ATTEMPT"
"""How often the other launcher has restarted the job; not set: it does not say."""
ONE_TASK = "no cluster in the environment: this is the only task"
"""The note if `--inherit auto` finds no cluster."""


@dataclass(frozen=True)
class Inherit:
    """Only one task of a cluster that another launcher has started is run."""

    source: SourceName = SourceName.TF_CONFIG
    """What describes the cluster in the environment."""
    waits: bool = True
    """The task starts once all others are up."""
    found: ClusterRole | None = None
    """The cluster, and the task; None: the environment describes none, so this task is the only one."""
    attempt: int = 0
    """How often the other launcher has restarted the job."""
    key: Key = field(default_factory=Key)
    """What the tasks of this attempt have in common."""

    @property
    def flag(self) -> str:
        """The option, for messages."""
        return f"--inherit {self.source}"

    def read(self, environ: Mapping[str, str], port: int | None = None, hosts: Sequence[Host] = ()) -> "Inherit":
        """The same with what `environ` describes.

        Args:
            environ: of this process.
            port: value of --port, for sources without ports.
            hosts: those of --hosts, of which there must be none.

        Raises:
            TfdistError: a variable is missing or malformed, the source has ports and one was given, or hosts were.
        """
        if hosts:
            raise TfdistError(f"{self.flag} runs one task on this machine: omit --hosts and --hostfile")
        attempt = environ.get(ATTEMPT) or "0"
        if not re.fullmatch(r"[0-9]{1,9}", attempt):
            raise TfdistError(f"{ATTEMPT}={attempt!r}: must be the number of restarts; unset it")
        found = inherited(self.source, environ, port, self.flag)
        key = Key(environ.get(ATTEMPT, ""), environ.get(BARRIER_SECRET, ""))
        return replace(self, found=found, attempt=int(attempt), key=key)

    @property
    def rendezvous(self) -> Rendezvous | None:
        """Where the tasks wait for each other; None: this one starts at once."""
        if self.found is None or not self.waits:
            return None
        return Rendezvous(self.found.cluster, self.found.task, self.key)


def implied_choices(found: ClusterRole, choices: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """The choices, with the strategy and its size that the cluster stands for.

    With GPUs, each worker gets an equal part of those of its host, unless --devices is chosen.

    Raises:
        TfdistError: a choice contradicts the cluster, or it has parameter servers without workers.
    """
    workers, ps = (len(found.cluster.addresses.get(role, ())) for role in ("worker", "ps"))
    if ps and not workers:
        raise TfdistError(f"the cluster in {found.origin} has parameter servers, but no worker; add one")
    implied: dict[str, Any] = {"strategy": StrategyName.MULTI_WORKER, "workers": workers}
    if ps:
        implied |= {"strategy": StrategyName.PARAMETER_SERVER, "ps": ps}
    for name, value in implied.items():
        chosen = str(choices.get(name, value))
        if chosen not in (str(value), "auto") and not (name == "strategy" and _has_roles(chosen, found.cluster)):
            raise TfdistError(f"--{name} {chosen}: the cluster in {found.origin} has {value}; omit --{name}")
    if str(choices.get("strategy", "auto")) != "auto":
        implied["strategy"] = choices["strategy"]
    share = len(machine.gpus) // on_same_host(found.cluster, found.task)
    if share > 1 and "ps" not in implied and machine.gpus_per_process > 1:
        implied["devices"] = choices.get("devices", share)
    return {**choices, **implied}


def _has_roles(strategy: str, cluster: Cluster) -> bool:
    """Whether the jobs of a strategy have the roles of this cluster."""
    row = _row(strategy)
    return row is not None and row.has_cluster and {role.name for role in row.roles} == _roles(cluster)


def _row(strategy: str) -> Strategy | None:
    return next((row for name, row in CATALOG.items() if name == strategy), None)


def _roles(cluster: Cluster) -> set[str]:
    return {role for role, addresses in cluster.addresses.items() if addresses and role != "evaluator"}


def machine_of_all(machine: Machine, found: ClusterRole, workers: int) -> Machine:
    """This machine with the GPUs of the whole cluster, assuming that every worker's machine has the same.

    Tasks on one host count its cores alike, whichever of them was started first and uses some already.
    """
    cores = machine.cores if on_same_host(found.cluster, found.task) == 1 else tuple(sorted(machine.cores))
    return replace(machine, cores=cores, gpus=machine.gpus * workers, gpu_ids=machine.gpu_ids * workers)


def check_task(found: ClusterRole, job: Job, spec: StrategyChoice, *, own: bool) -> None:
    """Raise a TfdistError if no program runs as the inherited task; `own`: it is the user's."""
    roles = {plan.task.role for plan in job.plans}
    if found.task.role not in roles and not (own and found.task.role == "evaluator"):
        fix = "give a COMMAND for it" if found.task.role == "evaluator" else "use worker"
        raise TfdistError(
            f"{found.origin}: its task is {found.task.name}, but the built-in training under {spec.strategy} has no "
            f"{found.task.role}: {fix}"
        )
    missing = [] if own else sorted(roles - {"evaluator"} - _roles(found.cluster))
    if missing:
        raise TfdistError(f"{found.origin}: its cluster has no {missing[0]}, which {spec.strategy} needs: add one")


def task_note(found: ClusterRole) -> str:
    """A note that names this task, as the environment does if the names differ."""
    before = f" ({_written(found.named)} there)" if found.named != found.task else ""
    return f"this task, from {found.origin}: {_written(found.task)}{before}"


def _written(task: Task) -> str:
    return f"{task.role} {task.index}"


def choices_of_one(choices: Mapping[str, Any]) -> Mapping[str, Any]:
    """The choices for the only task of a job: one worker, if the strategy has workers."""
    row = _row(str(choices.get("strategy", "auto")))
    return {"workers": 1, **choices} if row is not None and "workers" in row.options else choices
