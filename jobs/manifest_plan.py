"""Plans what the pods of `tfdist manifest` run, and where they keep runs and checkpoints. Starts nothing."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tfdist.jobs.choice import choose
from tfdist.jobs.host_selection import MANY
from tfdist.jobs.presets import PRESETS, Choice
from tfdist.jobs.recovery import AUTO, Recovery, refuse_for_command
from tfdist.jobs.request import Request
from tfdist.jobs.tasks import shape_of
from tfdist.launch.errors import TfdistError
from tfdist.launch.hosts.host import Host
from tfdist.launch.job import RoleShape
from tfdist.launch.kubernetes.manifest import INDEX
from tfdist.launch.kubernetes.options import VOLUME, KubernetesOptions, Workload
from tfdist.launch.machine import Machine
from tfdist.launch.policy import Policy
from tfdist.launch.redact import redact_value
from tfdist.models.datasets.table import SYNTHETIC, WITH_NAME
from tfdist.strategies.catalog import CATALOG
from tfdist.strategies.options import option_text, option_words


def storage_words(recovery: Recovery, options: KubernetesOptions, *, own: bool) -> list[str]:
    """Options of `tfdist launch` in each pod. The pods of a restart continue from the job's checkpoints.

    Args:
        recovery: what was given.
        options: has the volume.
        own: the program is the user's, and restores what it has saved by itself.

    Raises:
        TfdistError: an option about checkpoints cannot work in pods.
    """
    if own:
        refuse_for_command(recovery)
    words, folder = recovery.words, recovery.checkpoint_dir
    if recovery.resume not in (None, AUTO):
        raise TfdistError(f"{words['resume']}: a job continues from what its --checkpoint-dir holds; omit --resume")
    if folder is None and options.folder is not None:
        folder = f"{options.folder}/checkpoints"
    elif folder is not None and "://" not in folder and not (options.pvc and folder.startswith(f"{VOLUME}/")):
        fix = f"give a folder below {VOLUME}, where the volume is mounted," if options.pvc else "add --pvc CLAIM,"
        raise TfdistError(f"{words['checkpoint_dir']}: not on a volume of the pods; {fix} or use a URL (gs://...)")
    runs = ["--runs-dir", "/tmp/runs" if options.folder is None else f"{options.folder}/runs"]
    if folder is not None:
        return [*runs, "--checkpoint-dir", folder, *([] if own else ["--resume", AUTO])]
    for name in ("checkpoint_every", "keep", "resume"):
        if name in words:
            raise TfdistError(
                f"{words[name]}: the pods have no common folder; add --pvc CLAIM, or --checkpoint-dir with a "
                "URL (gs://...)"
            )
    return runs


POD = Host("pod")
ONE_POD = {"worker": RoleShape(1, computes=True, leads=True)}
"""The pod of a command that starts its tasks itself."""
WORKERS = 2
"""The default, as on a machine without GPUs."""
START_TIMEOUT_S = 600
"""Seconds for all tasks to be started: some nodes have to pull the image first, or do not exist yet."""
_OF_DATA = ("dataset", "data_dir", "shuffle", "classes", "evaluate", "epochs")
_WITHOUT_EFFECT = {
    "evaluator": "a pod runs one task of TF_CONFIG; omit it",
    "min_workers": "all workers are restarted together; omit it",
    "restart_on": "all pods are restarted after each preemption, and after --max-restarts failures; omit it",
}


def plan_workload(
    job: Request, given: Sequence[str], policy: Policy, options: KubernetesOptions
) -> tuple[Workload, tuple[str, ...]]:
    """What the pods run; and notes for the user. Data sets that only the image holds are not checked.

    Args:
        job: the options of `tfdist launch`.
        given: command-line words that each pod gets as they were given.
        policy: has the timeouts.
        options: the other options of `tfdist manifest`.

    Raises:
        TfdistError: an option is wrong, or cannot work in pods.
    """
    _refuse(job)
    default = "reference" if options.gpus else "cpu"
    preset = None if job.command else str(job.choices.get("preset") or default)
    resolved = _choose(job, options, preset)
    strategy = resolved.spec.strategy
    cluster = CATALOG[strategy].has_cluster
    words = ["launch", *(["--inherit", "tf-config"] if cluster else []), "--strategy", str(strategy)]
    if preset is not None:
        words += ["--preset", preset]
    for name in () if cluster else ("workers", "devices"):
        if name in CATALOG[strategy].options:
            words += option_words(name, getattr(resolved.spec, name))
    if cluster and options.gpus:
        words += ["--devices", str(options.gpus)]
    words += given
    if "--start-timeout" not in given:
        words += ["--start-timeout", str(START_TIMEOUT_S)]
    words += storage_words(job.recovery, options, own=bool(job.command))
    roles = shape_of(resolved.spec).roles if cluster else ONE_POD
    for name, role in roles.items():
        if not role.count:
            reason = "in a TF_CONFIG without ps, the chief is a worker"
            raise TfdistError(f"--strategy {strategy} without {name}: {reason}; add --ps 1")
    save_s = policy.save_grace_s(signal.SIGTERM)
    workload = Workload(roles, tuple(words), job.command, job.env, policy.max_restarts, policy.timeout_s, save_s)
    notes = [*resolved.notes, *(f"warning: {warning}" for warning in resolved.warnings)]
    if preset is not None and "preset" not in job.choices:
        notes.append(f"preset {preset}: {'--gpus' if options.gpus else 'no --gpus'}")
    return workload, tuple(notes)


def _refuse(job: Request) -> None:
    """Refuse secrets, which the manifest would show, and what has no effect in pods."""
    for name, value in job.env.items():
        if redact_value(name, value) != value:
            raise TfdistError(
                f"--env {name}: looks like a secret, which a manifest must not hold; put it into a Secret, and name "
                "that with --secret"
            )
    if INDEX in job.env:
        raise TfdistError(f"--env {INDEX}: the manifest sets it; omit it")
    for name in ("cores_per_device", "logical_gpus"):
        if name in job.choices:
            raise TfdistError(f"{option_text(name, job.choices[name])}: a pod has its node's devices; omit it")
    for name, reason in _WITHOUT_EFFECT.items():
        if name in job.recovery.words:
            raise TfdistError(f"{job.recovery.words[name]}: {reason}")


def _choose(job: Request, options: KubernetesOptions, preset: str | None) -> Choice[Any]:
    """The job's choice as on a machine with the devices of all workers together."""
    choices = dict(job.choices)
    if any(row.name == choices.get("strategy") and not row.has_cluster for row in CATALOG.values()):  # in one pod
        return _choose_on(Machine(tuple(range(MANY)), ("GPU",) * options.gpus), job, choices, preset)
    if options.gpus and choices.setdefault("devices", options.gpus) != options.gpus:
        fix = f"a worker uses all of its --gpus {options.gpus}; omit --devices"
        raise TfdistError(f"--devices {choices['devices']}: {fix}")
    workers = choices.get("workers", WORKERS)
    cores = range(workers * choices.get("devices", 1))
    gpus = ("GPU",) * workers * options.gpus
    machine = Machine(tuple(cores), gpus, slots=workers, hosts=max(workers, WORKERS))
    resolved = _choose_on(machine, job, choices, preset)
    others = [name for name, role in shape_of(resolved.spec).roles.items() if not role.computes]
    if others and options.gpus > 1:
        raise TfdistError(
            f"--gpus {options.gpus}: the {others[0]} has no GPU, and plans for one device of each worker then; "
            f"use --gpus 1 and --workers {workers * options.gpus}"
        )
    if others and options.gpus:
        try:
            _choose_on(replace(machine, gpus=()), job, choices, preset)
        except TfdistError as error:
            raise TfdistError(f"the {others[0]} has no GPU and would refuse: {error}") from None
    return resolved


def plan_bench(
    words: Sequence[str], command: tuple[str, ...], options: KubernetesOptions
) -> tuple[Workload, tuple[str, ...]]:
    """What the pod of a bench runs, and notes for the user. Its results are kept on the volume.

    Args:
        words: options of `tfdist bench`.
        command: the user's own program; empty for the built-in training.
        options: where.
    """
    out = ["--out", "/tmp/bench" if options.folder is None else f"{options.folder}/bench"]
    kept = [] if {"--out", "--resume"} & set(words) else out
    notes: tuple[str, ...] = ()
    if kept and not options.folder:
        notes = ("no --pvc: the results end with the pod; its log has the tables",)
    return Workload(ONE_POD, ("bench", *kept, *words), command), notes


def _choose_on(machine: Machine, job: Request, choices: Mapping[str, Any], preset: str | None) -> Choice[Any]:
    if preset is None:
        return choose(replace(job, choices=choices), {POD: machine})
    dataset = str(choices.get("dataset", PRESETS.get(preset, {}).get("dataset", SYNTHETIC)))
    if dataset.partition(":")[0] in WITH_NAME:  # only the image holds it: the rest is checked with synthetic data
        choices = {**{name: value for name, value in choices.items() if name not in _OF_DATA}, "dataset": SYNTHETIC}
    return choose(replace(job, choices={**choices, "preset": preset}), {POD: machine})
