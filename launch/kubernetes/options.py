"""Where and how the pods of a manifest run, and the names that Kubernetes accepts."""

import re
from dataclasses import dataclass
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.job import check_ports
from tfdist.launch.str_enum import StrEnum

VOLUME = "/tfdist"
"""Where pods mount the volume of --pvc."""


class Kind(StrEnum):
    """What a manifest creates."""

    JOBSET = "jobset"
    """A JobSet (jobset.x-k8s.io), with one Job per role; it restarts all pods together."""
    JOB = "job"
    """An Indexed Job (batch/v1) and a headless Service. The tasks have one role, and are not restarted."""


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
    """CPU limit of each pod; None: none."""
    memory: str | None = None
    """Memory limit of each pod, as 8Gi; None: none."""
    gpus: int = 0
    """GPUs of each pod whose tasks have devices; the other pods have none."""
    port: int = 2222
    """Port of each task, free in every pod: each has an address of its own."""

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all objects and pods of the job."""
        return {"app.kubernetes.io/name": "tfdist", "app.kubernetes.io/instance": self.name}

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of each object."""
        namespace = {} if self.namespace is None else {"namespace": self.namespace}
        return {"name": self.name, **namespace, "labels": self.labels}

    @property
    def queued_metadata(self) -> dict[str, Any]:
        """Metadata of the object that Kueue admits."""
        metadata = self.metadata
        if self.queue is not None:
            metadata["labels"]["kueue.x-k8s.io/queue-name"] = self.queue
        return metadata

    @property
    def folder(self) -> str | None:
        """The job's folder on the volume; None without --pvc."""
        return None if self.pvc is None else f"{VOLUME}/{self.name}"


_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
"""RFC 1035, as for Services, whose names are part of the pods' host names."""
_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""RFC 1123, between dots."""
_SUBDOMAIN = rf"{_PART}([.]{_PART})*"
_SHORT = r"(?=.{1,63}$)"
"""Length of a label: of DNS, and of Kubernetes."""
_QUANTITY = r"(?=[0.]*[1-9])([0-9]+|[0-9]*[.][0-9]+)([kMGTPE]|[KMGTPE]i|[eE][0-9]+)?"
"""Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""
_NAME = "use lower-case letters, digits and -"
_SHORT_NAME = "use at most 63 lower-case letters, digits and -"
_FORMATS: tuple[tuple[str, str, str], ...] = (
    ("image", r"\S+", "give the name of an image, as registry/image:tag"),
    ("name", _LABEL, f"must start with a letter; {_NAME}"),
    ("namespace", _SHORT + _PART, f"not a namespace; {_SHORT_NAME}"),
    ("queue", _SHORT + _SUBDOMAIN, f"not the name of a LocalQueue; {_SHORT_NAME}"),
    ("pvc", _SUBDOMAIN, f"not the name of a claim; {_NAME}"),
    ("secret", _SUBDOMAIN, f"not the name of a Secret; {_NAME}"),
    ("memory", _QUANTITY, "not a positive quantity; use bytes with a unit, as 8Gi"),
)
"""Field, pattern, and what is wrong with another value and how to fix it."""


def check_options(options: KubernetesOptions) -> None:
    """Refuse values that the API server would reject. Lengths of names depend on the pods, see `manifest`.

    Raises:
        TfdistError: the first wrong value.
    """
    for field, pattern, problem in _FORMATS:
        value = getattr(options, field)
        if value is not None and not re.fullmatch(pattern, value):
            raise TfdistError(f"--{field} {value or repr(value)}: {problem}")
    if options.cpus is not None and options.cpus < 1:
        raise TfdistError(f"--cpus {options.cpus}: must be at least 1; omit it for no limit")
    if options.gpus < 0:
        raise TfdistError(f"--gpus {options.gpus}: must be at least 0")
    check_ports(options.port, 1)
