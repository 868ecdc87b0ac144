"""The pod of a task: its container, what it may do, and how long it may take to stop."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tfdist.launch.job import NO_GPUS
from tfdist.launch.kubernetes.options import VOLUME, KubernetesOptions
from tfdist.launch.kubernetes.variables import (
    INDEX,
    cpus_variable,
    index_variable,
    literal,
    reference,
    tf_config,
    variable,
)
from tfdist.launch.kubernetes.workload import Workload

CONTAINER = "tfdist"
GPU = "nvidia.com/gpu"
STOP_MARGIN_S = 10
"""Seconds between the end of the save and SIGKILL by the kubelet: for the outcome and the run's files."""
_USER = 1000
"""Any user but root. Files on the volume belong to this user and group."""


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
    volumes = _volumes(options, gpus)
    container = _container(workload, options, role, gpus)
    container["env"] = _environment(workload, role, addresses, variables)
    if volumes:
        container["volumeMounts"] = [{"name": each["name"], "mountPath": path} for path, each in volumes.items()]
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
    if volumes:
        spec["volumes"] = list(volumes.values())
    return {"metadata": {"labels": options.labels}, "spec": spec}


def _container(workload: Workload, options: KubernetesOptions, role: str, gpus: int) -> dict[str, Any]:
    arguments = list(map(literal, workload.arguments))
    if arguments[0] == "launch":
        arguments += ["--name", f"{options.name}-{role}-{reference(INDEX)}"]
    if workload.command:
        arguments += ["--", *map(literal, workload.command)]
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": options.image,
        "command": ["tfdist"],
        "args": arguments,
    }
    limits = {"cpu": str(options.cpus or ""), "memory": options.memory or "", GPU: str(gpus or "")}
    if any(limits.values()):
        container["resources"] = {"limits": {name: value for name, value in limits.items() if value}}
    if options.secret is not None:
        container["envFrom"] = [{"secretRef": {"name": options.secret}}]
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"
    return container


def _environment(
    workload: Workload, role: str, addresses: Mapping[str, Sequence[str]], variables: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The index comes first, as TF_CONFIG refers to it. The user's variables replace the defaults."""
    defaults = {
        "HOME": variable("HOME", "/tmp"),  # the user of the pod has no home in most images
        **{name: cpus_variable(name) for name in ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS")},
    }
    if not workload.roles[role].computes:
        defaults["CUDA_VISIBLE_DEVICES"] = variable("CUDA_VISIBLE_DEVICES", NO_GPUS)
    users = {name: variable(name, literal(value)) for name, value in workload.env.items()}
    fixed = [index_variable(), *map(dict, variables)]
    if "--inherit" in workload.arguments:
        fixed.append(variable("TF_CONFIG", tf_config(addresses, role)))
    return [*fixed, *{**defaults, **users}.values()]


def _volumes(options: KubernetesOptions, gpus: int) -> dict[str, dict[str, Any]]:
    """Volumes by mount path. Several GPUs exchange data through /dev/shm, of which containers have 64 MB by default."""
    volumes: dict[str, dict[str, Any]] = {}
    if options.pvc is not None:
        volumes[VOLUME] = {"name": "tfdist", "persistentVolumeClaim": {"claimName": options.pvc}}
    if gpus > 1:
        volumes["/dev/shm"] = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    return volumes
