"""A Job: the pods of one role, and what their failures mean."""

import math
from typing import Any

from tfdist.launch.errors import ExitCode
from tfdist.launch.kubernetes.pod import CONTAINER
from tfdist.launch.kubernetes.workload import Workload

KEEP_S = 24 * 3600
"""How long a finished job and the logs of its pods are kept."""
WRONG_INPUT = 2
"""Index of the rule for wrong input among those of `_pod_failure_policy`."""


def job_spec(workload: Workload, role: str, template: dict[str, Any]) -> dict[str, Any]:
    """The spec of the Job whose pods are the tasks of one role. It fails with the first pod that fails."""
    count = workload.roles[role].count
    spec: dict[str, Any] = {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": _pod_failure_policy(),
    }
    if workload.timeout_s is not None:
        spec["activeDeadlineSeconds"] = math.ceil(workload.timeout_s)
    return {**spec, "template": template}


def _pod_failure_policy() -> dict[str, Any]:
    """Fails the Job in each case, with a message that names the index of the rule."""
    # The status is optional from Kubernetes 1.35 on only.
    disruption = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {"rules": [disruption, _on_exit(ExitCode.PREEMPTED), _on_exit(ExitCode.USAGE)]}


def _on_exit(code: ExitCode) -> dict[str, Any]:
    return {"action": "FailJob", "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [int(code)]}}
