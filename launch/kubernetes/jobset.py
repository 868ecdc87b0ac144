"""A JobSet (jobset.x-k8s.io/v1alpha2): one Job for each role, restarted together.

Sources: https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/ and
https://jobset.sigs.k8s.io/docs/tasks/failure_policy/
"""

from typing import Any

from tfdist.launch.kubernetes.job import KEEP_S, WRONG_INPUT, job_spec
from tfdist.launch.kubernetes.options import KubernetesOptions
from tfdist.launch.kubernetes.pod import pod_template
from tfdist.launch.kubernetes.variables import label_variable
from tfdist.launch.kubernetes.workload import Workload

_POD_FAILURE_POLICY = "PodFailurePolicy"
"""Why a Job has failed if one of its pod failure rules applied."""


def pod_name(name: str, role: str, index: int) -> str:
    """The host name of a pod, and the beginning of its own name; 0 is the index of the role's only Job."""
    return f"{name}-{role}-0-{index}"


def documents(workload: Workload, options: KubernetesOptions, addresses: dict[str, list[str]]) -> list[dict[str, Any]]:
    """The JobSet. Its controller creates the headless Service that gives the pods their names."""
    spec = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": workload.leading},
        "failurePolicy": _failure_policy(workload.max_restarts),
        "ttlSecondsAfterFinished": KEEP_S,
        "replicatedJobs": [_replicated_job(workload, options, role, addresses) for role in workload.roles],
    }
    metadata = options.queued_metadata
    return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}]


def _replicated_job(
    workload: Workload, options: KubernetesOptions, role: str, addresses: dict[str, list[str]]
) -> dict[str, Any]:
    """The pods know their attempt, because those of the one before had the same names."""
    attempt = label_variable("TFDIST_ATTEMPT", "jobset.sigs.k8s.io/restart-attempt")
    template = pod_template(workload, options, role, addresses, [attempt])
    return {"name": role, "replicas": 1, "template": {"spec": job_spec(workload, role, template)}}


def _failure_policy(max_restarts: int) -> dict[str, Any]:
    """The first rule that matches counts; without one, the JobSet is restarted, at most `max_restarts` times.

    The rule for exit code 2 needs JobSet 0.10: older ones do not know onJobFailureMessagePatterns.
    """
    return {
        "maxRestarts": max_restarts,
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": "wrongInput",
                "action": "FailJobSet",
                "onJobFailureReasons": [_POD_FAILURE_POLICY],
                "onJobFailureMessagePatterns": [f"matching FailJob rule at index {WRONG_INPUT}$"],
            },
            {
                "name": "preempted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": [_POD_FAILURE_POLICY],
            },
            {"name": "deadline", "action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]},
        ],
    }
