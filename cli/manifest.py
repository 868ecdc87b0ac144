"""`tfdist manifest`: its options about Kubernetes, and the YAML that it prints.

PyYAML leaves 1e-3, 0o17 and y without quotes: they are strings in its YAML. For kubectl they are numbers and a boolean
(https://pkg.go.dev/sigs.k8s.io/yaml), which no argument and no variable may be.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
import yaml

from tfdist.cli.given_options import given_words
from tfdist.cli.launch import Command, Config, Env, EnvFile, Timeout, check_timeout
from tfdist.cli.options import TRAINING, annotation, gather, training_options
from tfdist.cli.plan_manifest import ManifestRequest, plan_workload
from tfdist.cli.recovery_options import Recovery, recovery_options
from tfdist.cli.timeout_options import timeout_options
from tfdist.launch.environment import forwarded_variables
from tfdist.launch.errors import TfdistError
from tfdist.launch.kubernetes.manifest import manifest as objects_of
from tfdist.launch.kubernetes.options import Kind, KubernetesOptions, check_options
from tfdist.launch.policy import Policy
from tfdist.launch.text import did_you_mean, is_utf8

_WORD = re.compile(r"(--)?[A-Za-z/][\w./:-]*", re.ASCII)
_VALUES = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that are booleans or null for some reader, in lower case."""


def to_yaml(objects: Sequence[Any]) -> str:
    """A document for each object, of JSON values. A string is one line, in quotes unless it is plainly a word.

    Raises:
        TfdistError: a string is not UTF-8.
    """
    return yaml.dump_all(
        objects, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=float("inf"), allow_unicode=True
    )


class _Dumper(yaml.SafeDumper):
    """Writes strings as `_string` does."""


def _string(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    """Style of the quotes; None: without. Only double quotes have escapes."""
    if not is_utf8(text):
        raise TfdistError(f"{text!r}: not valid UTF-8; use UTF-8, as Kubernetes accepts nothing else")
    if _WORD.fullmatch(text) and text.lower() not in _VALUES:
        return None
    return "'" if text.isprintable() and "'" not in text else '"'


_Dumper.add_representer(str, _string)


KUBERNETES = "Kubernetes"

_ROWS: tuple[tuple[str, Any, str], ...] = (
    ("image", str, "Container image with tfdist on its PATH and, for a COMMAND, your program. Required."),
    ("name", str, "Name of the objects, and of the job's folder on the volume. Default: training."),
    ("namespace", str, "Namespace of the objects. Default: that of kubectl."),
    ("kind", str, "jobset, or job: an Indexed Job (multiworker only, no restarts). Default: jobset."),
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


_OF_ONE_MACHINE = ("cores_per_device", "logical_gpus")
_TRAINING = tuple(name for name in TRAINING if name not in _OF_ONE_MACHINE)
_DECIDED_HERE = ("strategy", "preset", "workers", "ps", "devices")
_FOR_PODS = (
    *(name for name in _TRAINING if name not in _DECIDED_HERE),
    "checkpoint_every", "keep", "stall_timeout", "stop_on_nan", "start_timeout", "grace_period",
)  # fmt: skip
"""Options that each pod gets as they were given."""


@training_options(_TRAINING)
@recovery_options()
@timeout_options(("start_timeout", "grace_period"))
@kubernetes_options()
def manifest(
    ctx: typer.Context,
    choices: Mapping[str, Any],
    options: KubernetesOptions,
    *,
    recovery: Recovery,
    timeout: Timeout = None,
    policy: Policy,
    command: Command = None,
    config: Config = None,
    env: Env = None,
    env_file: EnvFile = None,
) -> None:
    """Print a Kubernetes manifest that runs a training. Start nothing.

    \b
    Examples:
      tfdist manifest --image REGISTRY/tfdist:1 --workers 4 \\
        --pvc data --checkpoint-every 200 | kubectl apply -f -
      tfdist manifest --image REGISTRY/tfdist:1 --workers 2 --ps 1 \\
        --gpus 1 --cpus 8 --memory 32Gi --queue team-a
      tfdist manifest --image REGISTRY/mine:1 --kind job --workers 2 \\
        -- python train.py

    The other options are those of 'tfdist launch'. Each pod runs one task, with 'tfdist launch --inherit-tf-config'.

    The cluster needs JobSet 0.10 or newer, unless --kind is job. --timeout limits each attempt.

    --max-restarts counts restarts after failures; after a preemption all pods are restarted in any case.
    """
    check_timeout(timeout)
    variables = forwarded_variables(env or (), env_file, os.environ)
    words = tuple(given_words(ctx, _FOR_PODS))
    request = ManifestRequest(choices, words, tuple(command or ()), variables, recovery, policy, timeout)
    workload, notes = plan_workload(request, options)
    text = to_yaml(objects_of(workload, options))
    for note in notes:
        typer.echo(note, err=True)
    typer.echo(text, nl=False)
