"""The options of `tfdist manifest` about Kubernetes."""

from collections.abc import Callable, Mapping
from typing import Any

from tfdist.cli.options import annotation, gather
from tfdist.launch.errors import TfdistError
from tfdist.launch.kubernetes.options import Kind, KubernetesOptions, check_options
from tfdist.launch.text import did_you_mean

KUBERNETES = "Kubernetes"

_ROWS: tuple[tuple[str, Any, str], ...] = (
    ("image", str, "Container image with tfdist on its PATH and, for a COMMAND, your program. Required."),
    ("name", str, "Name of the objects, and of the job's folder on the volume. Default: training."),
    ("namespace", str, "Namespace of the objects. Default: that of kubectl."),
    ("kind", str, "jobset, or job: an Indexed Job, for clusters without JobSet (multiworker only, no restarts). Default: jobset."),
    ("queue", str, "LocalQueue of Kueue."),
    ("pvc", str, "Claim of a volume that all pods can write (ReadWriteMany), for checkpoints and the folders of runs."),
    ("secret", str, "Secret whose keys become environment variables of every pod."),
    ("network_policy", bool, "Let only the job's own pods connect to its pods (NetworkPolicy). Default: yes."),
    ("gpus", int, "Number of GPUs of each worker; other pods have none. Default: 0."),
    ("cpus", int, "Number of CPUs of each pod. Default: no limit."),
    ("memory", str, "Memory of each pod, for example 8Gi. Default: no limit."),
    ("port", int, "Port of each task; each pod has its own address. Default: 2222."),
)  # fmt: skip
_OPTIONS: Mapping[str, Any] = {name: annotation(name, kind, KUBERNETES, text) for name, kind, text in _ROWS}


def kubernetes_options() -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options; its parameter `options` is the KubernetesOptions that they mean."""
    return gather("options", _OPTIONS, read_kubernetes_options)


def read_kubernetes_options(values: Mapping[str, Any]) -> Any:
    """The KubernetesOptions with these values, by option name; None counts as not given.

    Raises:
        TfdistError: there is no image, or a value is wrong.
    """
    given = {name: value for name, value in values.items() if value is not None}
    if "image" not in given:
        raise TfdistError("--image: missing option; give the container image that the pods run")
    if "kind" in given:
        given["kind"] = _kind(given["kind"])
    options = KubernetesOptions(**given)
    check_options(options)
    return options


def _kind(name: str) -> Kind:
    try:
        return Kind(name)
    except ValueError:
        raise TfdistError(f"--kind {name}: {did_you_mean(name, map(str, Kind))}") from None
