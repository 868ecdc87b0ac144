"""What the pods of a manifest run, where and how; and the names that Kubernetes accepts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfdist.launch.cluster import check_ports
from tfdist.launch.errors import TfdistError
from tfdist.launch.job import RoleShape
from tfdist.launch.str_enum import StrEnum

VOLUME = "/tfdist"
"""Where pods mount the volume of --pvc."""
NODE = "node"
"""Name of the workers' Job and container in Kubeflow Trainer, whose webhook requires that of the container."""


@dataclass(frozen=True)
class Workload:
    """A job whose tasks a cluster starts: a pod each."""

    roles: Mapping[str, RoleShape]
    """Shapes by role, in the order of the tasks."""
    arguments: tuple[str, ...]
    """Arguments of `tfdist` in every pod, from the command on."""
    command: tuple[str, ...] = ()
    """The user's own program; empty for the built-in training."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of every pod."""
    max_restarts: int = 0
    """Restarts of all pods after failures; those after preemption are not counted."""
    timeout_s: float | None = None
    """Limit of each attempt; None: no limit."""
    save_s: float = 25.0
    """Longest time between SIGTERM and the end of `tfdist launch`: for a checkpoint."""


class Kind(StrEnum):
    """What a manifest creates."""

    JOBSET = "jobset"
    """A JobSet (jobset.x-k8s.io), with one Job per role; it restarts all pods together."""
    JOB = "job"
    """An Indexed Job (batch/v1) and a headless Service. The tasks have one role, and are not restarted."""
    TRAINJOB = "trainjob"
    """A TrainJob of Kubeflow Trainer v2, and the TrainingRuntime from which its controller creates such a JobSet."""


@dataclass(frozen=True)
class KubernetesOptions:
    """The options of `tfdist manifest` that `tfdist launch` lacks."""

    image: str
    """Image of the container; has tfdist on its PATH."""
    name: str = "training"
    """Name of all objects, and the beginning of the pods' names."""
    namespace: str | None = None
    """None: that of kubectl."""
    kind: Kind = Kind.JOBSET
    queue: str | None = None
    """Kueue's LocalQueue."""
    pvc: str | None = None
    """Claim of a volume that all pods can write."""
    secret: str | None = None
    """A Secret whose keys become variables of every pod."""
    network_policy: bool = True
    """Only the job's own pods can connect to its pods."""
    cpus: int | None = None
    """CPU limit of each pod; None: no limit."""
    memory: str | None = None
    """Memory limit of each pod, as 8Gi; None: no limit."""
    gpus: int = 0
    """GPUs of each pod whose tasks have devices; the other pods have none."""
    port: int = 2222
    """Port of each task, free in every pod: each has an address of its own."""

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all objects and pods of the job."""
        return {"app.kubernetes.io/name": "tfdist", "app.kubernetes.io/instance": self.name}

    @property
    def queue_label(self) -> dict[str, str]:
        """Label of the object that Kueue admits; empty without --queue."""
        return {} if self.queue is None else {"kueue.x-k8s.io/queue-name": self.queue}

    @property
    def container(self) -> str:
        """Name of the container of each pod."""
        return NODE if self.kind is Kind.TRAINJOB else "tfdist"

    def job_of(self, role: str) -> str:
        """Name of the Job of a role in a JobSet."""
        return NODE if self.kind is Kind.TRAINJOB and role == "worker" else role

    @property
    def folder(self) -> str | None:
        """The job's folder on the volume; None without --pvc."""
        return None if self.pvc is None else f"{VOLUME}/{self.name}"


# RFC 1035, as for Services, whose names are part of the pods' host names; RFC 1123; its parts between dots.
_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_PART}([.]{_PART})*"
_SHORT = r"(?=.{1,63}$)"
# Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_QUANTITY = r"(?=[0.]*[1-9])([0-9]+|[0-9]*[.][0-9]+)([kMGTPE]|[KMGTPE]i|[eE][0-9]+)?"
_NAME = "use lower-case letters, digits and -"
_SHORT_NAME = "use at most 63 lower-case letters, digits and -"
# Field, pattern, and what is wrong with another value and how to fix it.
_FORMATS: tuple[tuple[str, str, str], ...] = (
    ("image", r"\S+", "give the name of an image, as registry/image:tag"),
    ("name", _LABEL, f"must start with a letter; {_NAME}"),
    ("namespace", _SHORT + _PART, f"not a namespace; {_SHORT_NAME}"),
    ("queue", _SHORT + _SUBDOMAIN, f"not the name of a LocalQueue; {_SHORT_NAME}"),
    ("pvc", _SUBDOMAIN, f"not the name of a claim; {_NAME}"),
    ("secret", _SUBDOMAIN, f"not the name of a Secret; {_NAME}"),
    ("memory", _QUANTITY, "not a positive quantity; use bytes with a unit, as 8Gi"),
)


def check_options(options: KubernetesOptions) -> None:
    """Refuse values that the API server would reject. Lengths of names depend on the pods, see `manifest`.

    Raises:
        TfdistError: the first wrong value.
    """
    for name, pattern, problem in _FORMATS:
        value = getattr(options, name)
        if value is not None and not re.fullmatch(pattern, value):
            raise TfdistError(f"--{name} {value or repr(value)}: {problem}")
    if options.cpus is not None and options.cpus < 1:
        raise TfdistError(f"--cpus {options.cpus}: must be at least 1; omit it for no limit")
    if options.gpus < 0:
        raise TfdistError(f"--gpus {options.gpus}: must be at least 0")
    check_ports(options.port, 1)
