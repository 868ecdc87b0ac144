"""An Indexed Job (batch/v1) with a headless Service: for clusters without JobSet.

Source: https://kubernetes.io/docs/tasks/job/job-with-pod-to-pod-communication/
"""

from typing import Any

from tfdist.launch.errors import TfdistError
from tfdist.launch.kubernetes.job import KEEP_S, job_spec
from tfdist.launch.kubernetes.options import KubernetesOptions
from tfdist.launch.kubernetes.pod import pod_template
from tfdist.launch.kubernetes.workload import Workload
from tfdist.launch.text import listed


def pod_name(name: str, role: str, index: int) -> str:
    """The host name of a pod, and the beginning of its own name."""
    return f"{name}-{index}"


def documents(workload: Workload, options: KubernetesOptions, addresses: dict[str, list[str]]) -> list[dict[str, Any]]:
    """The Service and the Job.

    Raises:
        TfdistError: the tasks have several roles, or are to be restarted.
    """
    if len(workload.roles) > 1:
        raise TfdistError(
            f"--kind job: all its pods are alike, and these have the roles {listed(workload.roles)}; use --kind jobset"
        )
    if workload.max_restarts:
        raise TfdistError(
            f"--max-restarts {workload.max_restarts}: a Job cannot restart all its pods together; use --kind jobset, "
            "or omit it"
        )
    (role,) = workload.roles
    template = pod_template(workload, options, role, addresses)
    template["spec"]["subdomain"] = options.name
    spec = {"ttlSecondsAfterFinished": KEEP_S, **job_spec(workload, role, template)}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": options.queued_metadata, "spec": spec}
    return [_service(options), job]


def _service(options: KubernetesOptions) -> dict[str, Any]:
    """Gives each pod a name, also before it is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": options.metadata,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": options.labels,
            "ports": [{"name": "tensorflow", "port": options.port}],
        },
    }
