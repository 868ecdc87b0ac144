"""`tfdist manifest`: its options about Kubernetes, and the YAML that it prints.

PyYAML leaves 1e-3, 0o17 and y without quotes: they are strings in its YAML. For kubectl they are numbers and a boolean
(https://pkg.go.dev/sigs.k8s.io/yaml), which no argument and no variable may be.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer
import yaml

from tfdist.cli.command import given_words
from tfdist.cli.options import annotation, gather
from tfdist.cli.scheduler import PlanOn, check_hosts, check_parameters
from tfdist.jobs.host_selection import HostSelection, imagined
from tfdist.jobs.launch_plan import LaunchOptions
from tfdist.jobs.manifest_plan import ManifestRequest, plan_bench, plan_workload
from tfdist.jobs.options import KUBERNETES_OPTIONS
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
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


HELP = """Print a Kubernetes manifest that runs another command.

Nothing is started: pipe the manifest to kubectl.

\b
Examples:
  tfdist manifest --image REGISTRY/tfdist:1 --pvc data \\
    launch --workers 4 --checkpoint-every 200 | kubectl apply -f -
  tfdist manifest --image REGISTRY/tfdist:1 --gpus 8 \\
    launch --strategy mirrored | kubectl apply -f -
  tfdist manifest --image REGISTRY/tfdist:1 --gpus 1 --cpus 8 --memory 32Gi \\
    --queue team-a launch --workers 2 --ps 1
  tfdist manifest --image REGISTRY/mine:1 --kind job \\
    launch --workers 2 -- python train.py
  tfdist manifest --image REGISTRY/tfdist:1 --gpus 4 --pvc data bench

A launch runs each task of a cluster in a pod, with 'tfdist launch --inherit tf-config', and other strategies in one
pod. A bench runs in one pod.

The cluster needs JobSet 0.10 or newer, unless --kind is job. --timeout limits each attempt.

--max-restarts counts restarts after failures; after a preemption all pods are restarted in any case.
"""
_PLANNED = (
    "strategy", "preset", "workers", "ps", "devices", "command", "env", "env_file", "timeout", "port", "runs_dir",
    "checkpoint_dir", "resume", "evaluator", "max_restarts", "restart_on", "min_workers", "name", "requeue",
)  # fmt: skip
"""Options of a launch that pods get in another form, or not at all."""
_HERE = ("runs_dir", "name", "requeue", "workers_per_host", "python", "chdir", "cores_per_device", "no_wait_for_peers")
"""Options of a launch that mean something on one machine or in a Slurm job only."""
_FIX = "put it into a Secret whose keys become variables, and name it with --secret"


@dataclass(frozen=True)
class Pods:
    """What Kubernetes is asked for."""

    values: Mapping[str, Any]
    """Values by option name; only those that were given."""

    def select(self, ctx: typer.Context, values: Mapping[str, Any]) -> HostSelection:
        """No hosts: Kubernetes finds them.

        Raises:
            TfdistError: an option names hosts.
        """
        check_hosts(ctx, "the pods are the hosts")
        return HostSelection()

    def submit(self, ctx: typer.Context, plan: PlanOn, policy: Policy, job: LaunchOptions | None = None) -> None:
        """Print the manifest.

        Raises:
            TfdistError: an option is wrong, or cannot work in pods.
        """
        options = read_kubernetes_options({**self.values, "port": ctx.params.get("port")})
        check_parameters(ctx, "manifest")
        if job is None:
            planned = plan({LOCAL: imagined(LOCAL, options.gpus)})
            workload, notes = plan_bench(given_words(ctx, (), _FIX), options)
            notes = (*planned.notes, *(f"warning: {warning}" for warning in planned.warnings), *notes)
        else:
            check_parameters(ctx, "manifest", _HERE)
            words = tuple(given_words(ctx, _PLANNED, _FIX))
            request = ManifestRequest(job.choices, words, job.command, job.env, job.recovery, policy, policy.timeout_s)
            workload, notes = plan_workload(request, options)
        text = to_yaml(objects_of(workload, options))
        for note in notes:
            typer.echo(note, err=True)
        typer.echo(text, nl=False)


def read_kubernetes_options(values: Mapping[str, Any]) -> KubernetesOptions:
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


@gather("options", {row.name: annotation(row) for row in KUBERNETES_OPTIONS}, lambda _, values: values)
def manifest(ctx: typer.Context, options: Mapping[str, Any]) -> None:
    """Pass what Kubernetes is asked for to the other command. HELP is the text for users."""
    ctx.obj = Pods({name: value for name, value in options.items() if value is not None})
