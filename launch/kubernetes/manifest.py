"""A job as Kubernetes objects. Starts nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.kubernetes import indexed_job, jobset
from tfdist.launch.kubernetes.options import Kind, KubernetesOptions, check_options
from tfdist.launch.kubernetes.workload import Workload

_MAX_NAME = 63
"""Characters of a host name (RFC 1123)."""
_SUFFIX = "-abcde"
"""The random end of a pod's name."""


@dataclass(frozen=True)
class _Row:
    """A kind of manifest."""

    pod_name: Callable[[str, str, int], str]
    """Name of a pod: of the job's name, the role and the index."""
    documents: Callable[[Workload, KubernetesOptions, dict[str, list[str]]], list[dict[str, Any]]]


_KINDS = {
    Kind.JOBSET: _Row(jobset.pod_name, jobset.documents),
    Kind.JOB: _Row(indexed_job.pod_name, indexed_job.documents),
}


def manifest(workload: Workload, options: KubernetesOptions) -> list[dict[str, Any]]:
    """The objects to create, in this order.

    Raises:
        TfdistError: an option is wrong, or does not suit this job.
    """
    check_options(options)
    kind = _KINDS[options.kind]
    names = {
        role: [kind.pod_name(options.name, role, index) for index in range(shape.count)]
        for role, shape in workload.roles.items()
    }
    _check_names(options, names)
    addresses = {role: [f"{pod}.{options.name}:{options.port}" for pod in pods] for role, pods in names.items()}
    policies = [_network_policy(options)] if options.network_policy else []
    return [*policies, *kind.documents(workload, options, addresses)]


def _check_names(options: KubernetesOptions, names: dict[str, list[str]]) -> None:
    longest = max((pods[-1] for pods in names.values()), key=len)
    excess = len(longest + _SUFFIX) - _MAX_NAME
    if excess > 0:
        raise TfdistError(
            f"--name {options.name}: too long, as the pods' names ({longest}{_SUFFIX}) have at most {_MAX_NAME} "
            f"characters; use at most {len(options.name) - excess}"
        )


def _network_policy(options: KubernetesOptions) -> dict[str, Any]:
    """Only the job's pods may connect to them, on any port: NCCL chooses its own."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": options.metadata,
        "spec": {
            "podSelector": {"matchLabels": options.labels},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": options.labels}}]}],
        },
    }
