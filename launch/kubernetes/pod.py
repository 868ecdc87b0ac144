"""The pod of a task: its container, what it may do, how long it may take to stop, and its environment."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tfdist.launch.job import NO_GPUS
from tfdist.launch.kubernetes.options import VOLUME, KubernetesOptions, Workload

CONTAINER = "tfdist"
STOP_MARGIN_S = 10
"""Seconds between the end of the save and SIGKILL by the kubelet: for the outcome and the run's files."""
INDEX = "TFDIST_INDEX"
"""The task's index among those of its role. The Job controller appends JOB_COMPLETION_INDEX to a container's
variables, and a variable can refer only to those before it."""
_INDEX_REFERENCE = f"$({INDEX})"
# Any user but root. Files on the volume belong to this user and group.
_USER = 1000


def tf_config(addresses: Mapping[str, Sequence[str]], role: str) -> str:
    """TF_CONFIG of every task of `role`; the kubelet puts in the index."""
    cluster = json.dumps({name: list(hosts) for name, hosts in addresses.items()})
    return f'{{"cluster": {cluster}, "task": {{"type": "{role}", "index": {_INDEX_REFERENCE}}}}}'


def literal(text: str) -> str:
    """The text as an argument or a value that the kubelet leaves as it is.

    Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    return text.replace("$", "$$")


def field_variable(name: str, path: str) -> dict[str, Any]:
    """A variable with the value of a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def pod_template(
    workload: Workload,
    options: KubernetesOptions,
    role: str,
    addresses: Mapping[str, Sequence[str]],
    variables: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The template of the pods of one role.

    Args:
        workload: what they run.
        options: where.
        role: theirs.
        addresses: of all tasks, `host:port` by role and in order of index.
        variables: more of the container's.
    """
    gpus = options.gpus if workload.roles[role].computes else 0
    arguments = list(map(literal, workload.arguments))
    if arguments[0] == "launch":
        arguments += ["--name", f"{options.name}-{role}-{_INDEX_REFERENCE}"]
    if workload.command:
        arguments += ["--", *map(literal, workload.command)]
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": options.image,
        "command": ["tfdist"],
        "args": arguments,
    }
    limits = {"cpu": str(options.cpus or ""), "memory": options.memory or "", "nvidia.com/gpu": str(gpus or "")}
    if any(limits.values()):
        container["resources"] = {"limits": {name: value for name, value in limits.items() if value}}
    if options.secret is not None:
        container["envFrom"] = [{"secretRef": {"name": options.secret}}]
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    container["env"] = _environment(workload, role, addresses, variables)
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": math.ceil(workload.save_s) + STOP_MARGIN_S,
        "enableServiceLinks": False,  # a Service named tfdist would set TFDIST_PORT=tcp://...
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    volumes: dict[str, dict[str, Any]] = {}
    if options.pvc is not None:
        volumes[VOLUME] = {"name": "tfdist", "persistentVolumeClaim": {"claimName": options.pvc}}
    if gpus > 1:  # they exchange data through /dev/shm, of which containers have 64 MB by default
        volumes["/dev/shm"] = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    if volumes:
        container["volumeMounts"] = [{"name": each["name"], "mountPath": path} for path, each in volumes.items()]
        spec["volumes"] = list(volumes.values())
    return {"metadata": {"labels": options.labels}, "spec": spec}


def _environment(
    workload: Workload, role: str, addresses: Mapping[str, Sequence[str]], variables: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The index comes first, as TF_CONFIG refers to it. The user's variables replace the defaults."""
    sources: dict[str, dict[str, Any]] = {"HOME": {"value": "/tmp"}}  # the user of the pod has no home in most images
    for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        # The pod's CPU limit, rounded up; without a limit, the number of the node's CPUs.
        sources[name] = {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}
    if not workload.roles[role].computes:
        sources["CUDA_VISIBLE_DEVICES"] = {"value": NO_GPUS}
    sources |= {name: {"value": literal(value)} for name, value in workload.env.items()}
    index = field_variable(INDEX, "metadata.annotations['batch.kubernetes.io/job-completion-index']")
    fixed = [index, *map(dict, variables)]
    if "--inherit" in workload.arguments:
        fixed.append({"name": "TF_CONFIG", "value": tf_config(addresses, role)})
    return [*fixed, *({"name": name, **source} for name, source in sources.items())]
