"""`tfdist manifest`."""

import os
from collections.abc import Mapping
from typing import Any

import typer

from tfdist.cli.given_options import given_words
from tfdist.cli.kubernetes_options import kubernetes_options
from tfdist.cli.launch import Command, Config, Env, EnvFile, Timeout, check_timeout
from tfdist.cli.manifest_yaml import to_yaml
from tfdist.cli.options import TRAINING, training_options
from tfdist.cli.plan_manifest import ManifestRequest, plan_workload
from tfdist.cli.recovery_options import Recovery, recovery_options
from tfdist.cli.timeout_options import timeout_options
from tfdist.launch.environment import forwarded_variables
from tfdist.launch.kubernetes.manifest import manifest as objects_of
from tfdist.launch.kubernetes.options import KubernetesOptions
from tfdist.launch.policy import Policy

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
