"""The environment of a pod's container, and how texts pass through Kubernetes unchanged."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

INDEX = "TFDIST_INDEX"
"""The task's index among those of its role. The Job controller appends JOB_COMPLETION_INDEX to a container's
variables, and a variable can refer only to those before it."""
_INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


def tf_config(addresses: Mapping[str, Sequence[str]], role: str) -> str:
    """TF_CONFIG of every task of `role`; the kubelet puts in the index."""
    cluster = json.dumps({name: list(hosts) for name, hosts in addresses.items()})
    return f'{{"cluster": {cluster}, "task": {{"type": "{role}", "index": {reference(INDEX)}}}}}'


def reference(name: str) -> str:
    """What the kubelet replaces by the value of the variable, in values of later variables and in arguments."""
    return f"$({name})"


def literal(text: str) -> str:
    """The text as an argument or a value that the kubelet leaves as it is.

    Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
    """
    return text.replace("$", "$$")


def variable(name: str, value: str) -> dict[str, Any]:
    """A variable with a value, in which references are replaced."""
    return {"name": name, "value": value}


def index_variable() -> dict[str, Any]:
    """The variable INDEX."""
    return _field_variable(INDEX, f"metadata.annotations['{_INDEX_ANNOTATION}']")


def label_variable(name: str, label: str) -> dict[str, Any]:
    """A variable with the value of a label of the pod."""
    return _field_variable(name, f"metadata.labels['{label}']")


def cpus_variable(name: str) -> dict[str, Any]:
    """A variable with the pod's CPU limit, rounded up; without a limit, with the number of the node's CPUs."""
    return {"name": name, "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}


def _field_variable(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
