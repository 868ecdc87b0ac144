"""`tfdist manifest`: its options about Kubernetes, and the YAML that it prints.

PyYAML leaves 1e-3, 0o17 and y without quotes: they are strings in its YAML. For kubectl they are numbers and a boolean
(https://pkg.go.dev/sigs.k8s.io/yaml), which no argument and no variable may be.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import typer
import yaml

from tfdist.cli.command import given_words
from tfdist.cli.options import annotation, gather
from tfdist.cli.scheduler import HOST_NAMES, WITHOUT_EFFECT, PlanOn, check_parameters, refuse, schedule
from tfdist.jobs.host_selection import HostSelection, imagined
from tfdist.jobs.manifest_plan import plan_bench, plan_workload
from tfdist.jobs.options import Option
from tfdist.jobs.request import Request
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import LOCAL
from tfdist.launch.kubernetes.manifest import manifest as objects_of
from tfdist.launch.kubernetes.options import Kind, KubernetesOptions, check_options
from tfdist.launch.policy import Policy
from tfdist.launch.text import is_utf8

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
    if not is_utf8(text):
        raise TfdistError(f"{text!r}: not valid UTF-8; use UTF-8, as Kubernetes accepts nothing else")
    quotes = None
    if not _WORD.fullmatch(text) or text.lower() in _VALUES:
        quotes = "'" if text.isprintable() and "'" not in text else '"'  # only double quotes have escapes
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=quotes)


_Dumper.add_representer(str, _string)


KUBERNETES = "Kubernetes"
_OPTIONS = (
    Option("image", KUBERNETES, "Container image with tfdist on its PATH and your program, if any. Required.", str),
    Option("name", KUBERNETES, "Name of the objects, and of the job's folder on the volume. Default: training.", str),
    Option("namespace", KUBERNETES, "Namespace of the objects. Default: that of kubectl.", str),
    Option("kind", KUBERNETES, "{choices}; a job has pods of one role, and no restarts. Default: jobset.", Kind),
    Option("queue", KUBERNETES, "LocalQueue of Kueue.", str),
    Option("pvc", KUBERNETES, "Claim of a ReadWriteMany volume, for checkpoints and the folders of runs.", str),
    Option("secret", KUBERNETES, "Secret whose keys become environment variables of every pod.", str),
    Option("network_policy", KUBERNETES, "Let only the job's own pods connect to its pods. Default: yes.", bool),
    Option("gpus", KUBERNETES, "Number of GPUs of each worker; other pods have none. Default: 0.", int),
    Option("cpus", KUBERNETES, "Number of CPUs of each pod. Default: no limit.", int),
    Option("memory", KUBERNETES, "Memory of each pod, for example 8Gi. Default: no limit.", str),
)
_PLANNED = (
    "strategy", "preset", "workers", "ps", "devices", "command", "env", "env_file", "timeout", "port", "runs_dir",
    "checkpoint_dir", "resume", "evaluator", "max_restarts", "restart_on", "min_workers", "name", "requeue",
)  # fmt: skip
"""Options of a launch that pods get in another form, or not at all."""
_HERE = ("runs_dir", "name", "requeue", "cores_per_device", "no_wait_for_peers")
"""Options of a launch that mean something on one machine or in a Slurm job only."""
_OF_HOSTS = ("workers_per_host", "python", "chdir", "interface", "launcher_timeout", "burn")
_NEVER = (*HOST_NAMES, *WITHOUT_EFFECT, *_OF_HOSTS)
"""What no pod gets: variables may have set it for other commands."""
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
        refuse(ctx, HOST_NAMES, "the pods are the hosts")
        return HostSelection()

    def submit(self, ctx: typer.Context, plan: PlanOn, policy: Policy, job: Request | None = None) -> None:
        """Print the manifest.

        Raises:
            TfdistError: an option is wrong, or cannot work in pods.
        """
        if "image" not in self.values:
            raise TfdistError("--image: missing option; give the container image that the pods run")
        options = KubernetesOptions(**self.values)
        if ctx.params.get("port") is not None:
            options = replace(options, port=ctx.params["port"])
        check_options(options)
        check_parameters(ctx, "manifest", (*_OF_HOSTS, *(() if job is None else _HERE)))
        if job is None:
            planned = plan({LOCAL: imagined(LOCAL, options.gpus)})
            words = given_words(ctx, (*_NEVER, "command"), _FIX)
            workload, notes = plan_bench(words, tuple(ctx.params["command"] or ()), options)
            notes = (*planned.notes, *(f"warning: {warning}" for warning in planned.warnings), *notes)
        else:
            workload, notes = plan_workload(job, given_words(ctx, (*_PLANNED, *_HERE, *_NEVER), _FIX), policy, options)
        text = to_yaml(objects_of(workload, options))
        for note in notes:
            typer.echo(note, err=True)
        typer.echo(text, nl=False)


@gather("options", {row.name: annotation(row) for row in _OPTIONS})
def manifest(ctx: typer.Context, options: Mapping[str, Any]) -> None:
    """Print a Kubernetes manifest that runs another command.

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
      tfdist manifest --image REGISTRY/tfdist:1 --kind trainjob --pvc data \\
        launch --workers 4 --max-restarts 3 | kubectl apply -f -
      tfdist manifest --image REGISTRY/tfdist:1 --gpus 4 --pvc data bench

    A launch runs each task of a cluster in a pod, with 'tfdist launch --inherit tf-config', and other strategies in one
    pod. A bench runs in one pod; after a preemption, continue it with bench --resume FOLDER.

    The cluster needs JobSet 0.10 or newer, with --kind trainjob also Kubeflow Trainer 2.2, with --kind job neither.
    --timeout limits each attempt.

    --max-restarts counts restarts after failures; after a preemption all pods are restarted in any case.
    """
    schedule(ctx, Pods({name: value for name, value in options.items() if value is not None}))
